"""Opens a page in a real browser and lets it talk to a server of another origin: `BROWSER PAGE URL TOKEN MESSAGES`.

Run in an environment that has playwright. Prints as JSON what the page saw, and what the browser wrote in its console.
"""

import json
import sys

from playwright.sync_api import sync_playwright

program, page_url, url, token, messages = sys.argv[1:]
flags = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
flags += ["--disable-component-update", "--disable-sync"]
with sync_playwright() as p:
    browser = p.chromium.launch(executable_path=program, args=flags)
    page = browser.new_page()
    console = []
    page.on("console", lambda line: console.append(line.text))
    page.goto(page_url)
    seen = page.evaluate("([url, token, said]) => talk(url, token, said)", [url, token, json.loads(messages)])
    browser.close()
print(json.dumps({"seen": seen, "console": console}))
