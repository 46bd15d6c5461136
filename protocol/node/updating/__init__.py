"""Another version in place of the installed one: beside it first, then in its place once no daemon needs it."""
