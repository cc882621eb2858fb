"""The people of the demo: who they are, what they wish for, and how they talk. Each persona is one file of data."""

from turnwise.demo.personas.base import Aspect, Persona
from turnwise.demo.personas.reader import READER
from turnwise.demo.personas.student import STUDENT
from turnwise.demo.personas.teacher import TEACHER

PERSONAS: dict[str, Persona] = {persona.name: persona for persona in (READER, STUDENT, TEACHER)}

__all__ = ["PERSONAS", "Aspect", "Persona"]
