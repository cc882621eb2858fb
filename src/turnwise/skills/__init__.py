"""Skills: a library of short instructions, in the open format of SKILL.md, that are put into prompts they fit."""
