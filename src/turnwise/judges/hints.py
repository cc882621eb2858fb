def extract_hint(best, p, answer, reply, tool, found): return None
