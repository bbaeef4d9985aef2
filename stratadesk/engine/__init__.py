"""The engine: loads a model, reads prompts, writes answers, and tells all of it as events.

Other layers use `stratadesk.engine.loop.Engine` with the commands of `stratadesk.engine.commands`
and the events of `stratadesk.engine.events`. Importing this package loads no backend.
"""
