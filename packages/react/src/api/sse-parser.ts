/** Parses server-sent events as the HTML standard defines it; pure. */
export interface StreamEvent {
  /** Present when this event has one. */
  readonly id: string | undefined;
  readonly type: string;
  readonly data: string;
}

export interface SseTargets {
  /** Before its event; also for an id without data, which moves the place to continue from. */
  readonly id: (id: string) => void;
  readonly event: (event: StreamEvent) => void;
  readonly comment: (text: string) => void;
  readonly retry: (ms: number) => void;
}

export class SseParser {
  readonly #targets: SseTargets;
  /** The beginning of a line whose end has not arrived, in pieces. */
  #rest: string[] = [];
  #endedWithCr = false;
  #id: string | undefined;
  #type = "";
  #data: string[] = [];

  constructor(targets: SseTargets) {
    this.#targets = targets;
  }

  push(text: string): void {
    // A line feed after a carriage return belongs to the same line break.
    let start = this.#endedWithCr && text.startsWith("\n") ? 1 : 0;
    if (text !== "") this.#endedWithCr = text.endsWith("\r");
    for (const { index, 0: found } of text.matchAll(/\r\n|\n|\r/g)) {
      if (index < start) continue;
      this.#rest.push(text.slice(start, index));
      start = index + found.length;
      this.#line(this.#rest.join(""));
      this.#rest = [];
    }
    if (start < text.length) this.#rest.push(text.slice(start));
  }

  #line(line: string): void {
    if (line === "") return this.#dispatch();
    const colon = line.indexOf(":");
    if (colon === 0) return this.#targets.comment(line.slice(1).trim());
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "data") this.#data.push(value);
    else if (field === "event") this.#type = value;
    else if (field === "id" && !value.includes("\0")) this.#id = value;
    else if (field === "retry" && /^\d+$/.test(value)) this.#targets.retry(Number(value));
  }

  #dispatch(): void {
    const [id, type, data] = [this.#id, this.#type, this.#data];
    this.#id = undefined;
    this.#type = "";
    this.#data = [];
    if (id !== undefined) this.#targets.id(id);
    if (data.length === 0) return;
    this.#targets.event({ id, type: type === "" ? "message" : type, data: data.join("\n") });
  }
}
