"""A recording of a real run and a scripted one, for seeing the desk without a model."""
