/** The command `feed`: the rows of all sessions, from a cursor that a later command continues. */
import { toJsonString } from "@bufbuild/protobuf";
import { type Command, InvalidArgumentError, Option } from "commander";
import { WatchState } from "@session-ledger/proto/ambient/v1/common_pb";
import {
  type FeedEvent,
  FeedEventSchema,
  type FeedMessage,
  FeedMessageSchema,
} from "@session-ledger/proto/ambient/v1/feed_pb";
import { ledger } from "@session-ledger/runner/internal/client";
import { RpcFailure } from "@session-ledger/runner/internal/failure";
import { type StreamName, timestampOf } from "@session-ledger/runner/internal/rows";
import { reopening } from "@session-ledger/runner/internal/session-reader";
import { countArgument, type TextFlags } from "./arguments.ts";
import { seconds } from "./columns.ts";
import { callsService, type Connection } from "./connection.ts";
import { type CliIo, tell, unlessStopped } from "./io.ts";
import { addOutputOptions, type Column, type OutputFlags, printRecords } from "./table.ts";

interface FeedFlags extends OutputFlags, TextFlags<"cursor" | "project"> {
  readonly since?: bigint;
  readonly type?: readonly string[];
  readonly follow?: boolean;
}

export function addFeed(program: Command, io: CliIo): void {
  const command = program
    .command("feed")
    .summary("print the rows of all sessions")
    .description(
      "print the rows of all sessions, from the oldest, and at the end the cursor to continue from; each JSON line has its own",
    )
    .addArgument(program.createArgument("<stream>", "the rows").choices(["events", "messages"]))
    .option("--cursor <text>", "continue after this cursor of an earlier feed")
    .addOption(
      new Option("--since <time>", "only rows recorded since then, like 2026-11-23T09:00:00Z")
        .argParser(timeArgument)
        .conflicts("cursor"),
    )
    .option("--project <id>", "only sessions of this project")
    .addOption(
      new Option("--type <type>", "only this type; the option can be repeated").argParser(
        (type: string, others?: readonly string[]) => [...(others ?? []), type],
      ),
    )
    .option("-f, --follow", "continue with new rows, through restarts of the service")
    .option("-n, --limit <rows>", "end after this number of rows", countArgument());
  callsService(addOutputOptions(command), io, feed);
}

function timeArgument(text: string): bigint {
  const ms = Date.parse(text);
  if (/^\d{4}-\d{2}-\d{2}/.test(text) && ms >= 0) return BigInt(ms) * 1_000n;
  throw new InvalidArgumentError("Expected a time since 1970, like 2026-11-23T09:00:00Z.");
}

type FeedFrame = FeedEvent | FeedMessage;

async function feed(connection: Connection, stream: StreamName, flags: FeedFlags): Promise<void> {
  const { io } = connection;
  const place = { cursor: flags.cursor ?? "" };
  const rows = rowsOf(stream, place, { flags, connection });
  const forms = { json: frameJson, columns: COLUMNS };
  await printRecords(rows, forms, { flags, io }).catch(unlessStopped(io));
  if (place.cursor !== "") tell(io, `continue with --cursor ${place.cursor}`);
}

/** The cursor of `place` is that of the last row, or of a frame behind it. */
async function* rowsOf(
  stream: StreamName,
  place: { cursor: string },
  { flags, connection }: { readonly flags: FeedFlags; readonly connection: Connection },
): AsyncGenerator<FeedFrame, void, undefined> {
  const { client, retry } = connection;
  const { since, project: projectId = "", type = [], follow = false } = flags;
  const ended = new RpcFailure("OUT_OF_RANGE", "the feed has ended");
  async function* open(onAttached: () => void): AsyncGenerator<FeedFrame, void, undefined> {
    const { cursor } = place;
    const startTime = cursor === "" && since !== undefined ? timestampOf(since) : undefined;
    const filter = { projectId, eventTypes: [...type], snapshotOnly: !follow };
    const request = { cursor, startTime, ...filter };
    const options = { ...retry, onAttached };
    yield* stream === "events"
      ? client.watch(ledger.watchEvents, request, options)
      : client.watch(ledger.watchMessages, request, options);
    if (!follow) throw ended;
  }
  try {
    for await (const frame of reopening(open, retry)) {
      const isRow = frame.watchState === WatchState.UNSPECIFIED;
      // The first frame has the cursor of the request.
      if (frame.watchState !== WatchState.CATCHING_UP) place.cursor = frame.cursor;
      if (isRow) yield frame;
    }
  } catch (error) {
    if (error !== ended) throw error;
  }
}

function frameJson(frame: FeedFrame): string {
  return frame.$typeName === "ambient.v1.FeedEvent"
    ? toJsonString(FeedEventSchema, frame)
    : toJsonString(FeedMessageSchema, frame);
}

function rowOf(frame: FeedFrame) {
  return frame.$typeName === "ambient.v1.FeedEvent" ? frame.event : frame.message;
}

const COLUMNS: readonly Column<FeedFrame>[] = [
  { heading: "RECORDED", width: 20, text: ({ recordedAt }) => seconds(recordedAt) },
  { heading: "SESSION", width: 36, text: (frame) => rowOf(frame)?.sessionId ?? "" },
  { heading: "SEQ", width: 8, text: (frame) => String(rowOf(frame)?.seq ?? "") },
  { heading: "TYPE", width: 22, text: (frame) => rowOf(frame)?.eventType ?? "" },
  { heading: "PROJECT", width: 16, isWide: true, text: ({ projectId }) => projectId },
  { heading: "PAYLOAD", width: 0, isWide: true, text: (frame) => rowOf(frame)?.payload ?? "" },
];
