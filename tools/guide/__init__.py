"""How the bundled guide model is made; see README.md beside this."""
