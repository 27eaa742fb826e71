/** Buffers arguments of open calls, which LangChain4j has whole; above a limit they are emitted. */
import { isObject, type JsonObject, textOf } from "@session-ledger/agui/json";
import { exactJson } from "./entry.ts";

interface OpenCall {
  readonly name: string;
  args: string;
  /** True: a part of the arguments was emitted. */
  isCut: boolean;
}

type Emit = (event: JsonObject) => void;

export class ToolCallBuffer {
  readonly #charsMax: number;
  readonly #calls = new Map<string, OpenCall>();
  #chars = 0;

  /** `charsMax`: of the arguments of all calls. */
  constructor(charsMax: number) {
    this.#charsMax = charsMax;
  }

  start({ toolCallId, toolCallName }: JsonObject): void {
    const name = textOf(toolCallName) ?? "unknown";
    this.#calls.set(String(toolCallId), { name, args: "", isCut: false });
  }

  args({ toolCallId, delta }: JsonObject, emit: Emit): void {
    const call = this.#calls.get(String(toolCallId));
    if (call === undefined) return;
    for (let rest = textOf(delta) ?? ""; rest !== ""; ) {
      if (this.#chars === this.#charsMax)
        for (const [id, open] of this.#calls) this.#cut(id, open, emit);
      const piece = rest.slice(0, this.#charsMax - this.#chars);
      rest = rest.slice(piece.length);
      call.args += piece;
      this.#chars += piece.length;
    }
  }

  end({ toolCallId }: JsonObject, emit: Emit): void {
    const id = String(toolCallId);
    const call = this.#calls.get(id);
    if (call === undefined) return;
    this.#calls.delete(id);
    const { name: toolName, isCut } = call;
    if (isCut) {
      this.#cut(id, call, emit);
      return emit({ eventType: "CompleteToolCall", id, toolName });
    }
    this.#chars -= call.args.length;
    const parsed = exactJson(call.args);
    const input = isObject(parsed) ? parsed : call.args;
    emit({ eventType: "BeforeToolExecution", id, toolName, input });
  }

  clear(): void {
    this.#calls.clear();
    this.#chars = 0;
  }

  #cut(id: string, call: OpenCall, emit: Emit): void {
    if (call.args === "") return;
    const part = { id, toolName: call.name, partialArguments: call.args };
    emit({ eventType: "PartialToolCall", ...part });
    this.#chars -= call.args.length;
    call.args = "";
    call.isCut = true;
  }
}
