// Reads server-sent events out of bytes. The browser's own EventSource keeps heartbeats to itself, and
// a gateway that has frozen cannot be told from one where nothing happens without them.

/** Hands over each event as `{id, kind, data}`, and `{id}` alone for what only moves the place. */
export class Parser {
  #decoder = new TextDecoder();
  #rest = "";
  #id = null;
  #kind = "";
  #data = [];
  #moved = false;
  #hand;

  constructor(hand) {
    this.#hand = hand;
  }

  push(bytes) {
    const text = this.#rest + this.#decoder.decode(bytes, { stream: true });
    const lines = text.split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop();
    for (const line of lines) this.#line(line);
  }

  #line(line) {
    if (line === "") return this.#dispatch();
    if (line.startsWith(":")) return;
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "id") {
      this.#id = value;
      this.#moved = true;
    } else if (field === "event") this.#kind = value;
    else if (field === "data") this.#data.push(value);
  }

  #dispatch() {
    const data = this.#data.join("\n");
    if (data) this.#hand({ id: this.#id, kind: this.#kind, data });
    else if (this.#moved) this.#hand({ id: this.#id });
    this.#kind = "";
    this.#data = [];
    this.#moved = false;
  }
}
