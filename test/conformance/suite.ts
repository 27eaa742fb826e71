/** Runs one case of the table: a driver, the service that it speaks to, and the network between them. */
import { randomUUID } from "node:crypto";
import { z } from "zod";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { parseJson } from "@session-ledger/agui/json";
import { type RpcClient, RpcFailure } from "../support/grpc-client.ts";
import { addressOf, hostAndPort, startTcpProxy, type TcpProxy } from "../support/broken-network.ts";
import { cancel, claim, emit, say } from "../support/turns.ts";
import { type Case, difference, type Feature, numbered, type Step } from "./cases.ts";
import { Driver, DriverError } from "./driver.ts";
import { eventually } from "../support/eventually.ts";

const { deleteSession, getSession, listSessionEvents, listSessionMessages } = SessionService.method;

interface Target {
  readonly client: RpcClient;
  /** The service's address for gRPC, without TLS. */
  readonly address: string;
  /** Starts the driver. */
  readonly command: readonly string[];
}

/** The cases of one client. A driver that has passed a case serves a later one too. */
export class Suite {
  readonly #target: Target;
  readonly #idle: Driver[] = [];

  constructor(target: Target) {
    this.#target = target;
  }

  /** Skipped: the driver lacks a feature. Rejects with the number of the step that went wrong. */
  async run(one: Case): Promise<"passed" | "skipped"> {
    const proxy = await startTcpProxy(hostAndPort(this.#target.address));
    const run = new Run(this.#target, proxy, this.#idle.pop());
    try {
      const outcome = await run.all(one);
      this.#idle.push(run.driver);
      return outcome;
    } catch (error) {
      await run.driver.kill();
      throw error;
    } finally {
      await proxy.stop();
    }
  }

  /** Ends the drivers. */
  async stop(): Promise<void> {
    await Promise.all(this.#idle.map((driver) => driver.kill()));
  }
}

type DriverStep = Extract<Step, { readonly driver: string }>;
type StoredStep = Extract<Step, { readonly stored: string }>;
type Outcome = Promise<{ readonly answer: unknown } | { readonly error: DriverError }>;

class Run {
  readonly #target: Target;
  readonly #proxy: TcpProxy;
  readonly #sessionId = `conformance-${randomUUID()}`;
  #driver: Driver;
  #later: Outcome | undefined;
  /** The number after which the reader's next row begins. */
  #readUpTo: number | undefined;

  constructor(target: Target, proxy: TcpProxy, driver = new Driver(target.command)) {
    this.#target = target;
    this.#proxy = proxy;
    this.#driver = driver;
  }

  get driver(): Driver {
    return this.#driver;
  }

  async all({ needs, steps }: Case): Promise<"passed" | "skipped"> {
    const features = await this.#hello();
    if (!needs.every((feature) => features.includes(feature))) return "skipped";
    for (const [at, step] of steps.entries()) {
      await this.#take(step).catch((cause: unknown) => {
        const reason = cause instanceof Error ? cause.message : String(cause);
        throw new Error(`step ${at + 1}: ${reason}`, { cause });
      });
    }
    return "passed";
  }

  #hello(): Promise<readonly Feature[]> {
    return this.#driver.hello(addressOf(this.#proxy), this.#sessionId);
  }

  async #take(step: Step): Promise<void> {
    if ("driver" in step) return this.#command(step);
    if ("answered" in step) return this.#answered(step.answered);
    if ("stored" in step) return this.#stored(step);
    if ("network" in step) return this.#network(step.network);
    if ("service" in step) return this.#service(step);
    if (step.process === "kill") return this.#driver.kill();
    this.#driver = new Driver(this.#target.command);
    await this.#hello();
  }

  async #command(step: DriverStep): Promise<void> {
    const { driver: name, with: fields = {}, times = 1 } = step;
    if (name === "reader.open") this.#readUpTo = Number(fields["after"]);
    const sent = Array.from({ length: times }, (_, at) =>
      outcomeOf(this.#driver.do(name, fieldsSchema.parse(numbered(fields, at + 1)))),
    );
    if (step.later === true) {
      this.#later = sent[0];
      return;
    }
    for (const outcome of await Promise.all(sent)) {
      if (step.error === undefined) this.#check(outcome, step.answer ?? {});
      else if ("answer" in outcome) throw new Error(`no error: ${JSON.stringify(outcome.answer)}`);
      else refuse(difference(outcome.error.answered, step.error, "error"));
    }
  }

  async #answered(expected: object): Promise<void> {
    if (this.#later === undefined) throw new Error("no command is open");
    this.#check(await this.#later, expected);
    this.#later = undefined;
  }

  #check(outcome: Awaited<Outcome>, expected: object): void {
    if ("error" in outcome) throw outcome.error;
    refuse(difference(outcome.answer, expected));
    const { items } = readSchema.parse(outcome.answer);
    for (const { seq, last_seq: lastSeq } of items) {
      if (this.#readUpTo !== seq - 1) {
        throw new Error(`the reader gave ${seq} after ${this.#readUpTo}`);
      }
      this.#readUpTo = lastSeq;
    }
  }

  #network(how: "hold" | "hold_answers" | "cut"): void {
    if (how === "hold") this.#proxy.hold();
    else if (how === "hold_answers") this.#proxy.holdAnswers();
    else this.#proxy.cut();
  }

  async #service(step: Extract<Step, { readonly service: string }>): Promise<void> {
    const { client } = this.#target;
    const sessionId = this.#sessionId;
    switch (step.service) {
      case "say":
        await say(client, sessionId, step.text);
        return;
      case "event":
        for (let n = 1; n <= (step.times ?? 1); n += 1) {
          const event = eventSchema.parse(numbered(step.event, n));
          await emit(
            client,
            sessionId,
            event,
            step.epoch === undefined ? undefined : BigInt(step.epoch),
          );
        }
        return;
      case "claim":
        await claim(client, { sessionId, runId: step.run_id, producerEpoch: BigInt(step.epoch) });
        return;
      case "cancel": {
        const { openRunId: runId = "" } = await client.unary(getSession, { id: sessionId });
        await cancel(client, { sessionId, runId, reason: step.reason });
        return;
      }
      case "delete":
        await client.unary(deleteSession, { id: sessionId });
        return;
    }
  }

  async #stored(step: StoredStep): Promise<void> {
    await eventually(async () => refuse(storedDifference(step, await this.#rows(step.stored))));
  }

  /** The payloads of events, and the types and payloads of messages. */
  async #rows(stream: StoredStep["stored"]): Promise<readonly unknown[]> {
    const request = { sessionId: this.#sessionId, pageSize: 1_000 };
    const { client } = this.#target;
    try {
      if (stream === "events") {
        const { items } = await client.unary(listSessionEvents, { ...request, expand: true });
        return items.map(({ payload }) => parseJson(payload));
      }
      const { items } = await client.unary(listSessionMessages, request);
      return items.map(({ eventType: type, payload }) => ({ type, payload }));
    } catch (error) {
      // The first row makes the session.
      if (error instanceof RpcFailure && error.reason === "SESSION_NOT_FOUND") return [];
      throw error;
    }
  }
}

const fieldsSchema = z.record(z.string(), z.unknown());
const eventSchema = z.looseObject({ type: z.string() });
const readSchema = z.object({
  items: z.array(z.object({ seq: z.number(), last_seq: z.number() })).default([]),
});

function storedDifference(step: StoredStep, rows: readonly unknown[]): string | undefined {
  if ("rows" in step) return difference(rows, step.rows, step.stored);
  if (rows.length < step.rows_min)
    return `${rows.length} ${step.stored}, ${step.rows_min} expected`;
  return step.last && difference(rows.at(-1), step.last, "the last row");
}

/** Never rejects with an error that nothing awaits yet. */
function outcomeOf(answer: Promise<unknown>): Outcome {
  return answer.then(
    (value) => ({ answer: value }),
    (error: unknown) => ({
      error:
        error instanceof DriverError
          ? error
          : new DriverError({ code: "DRIVER", reason: "", message: String(error) }),
    }),
  );
}

function refuse(found: string | undefined): void {
  if (found !== undefined) throw new Error(found);
}
