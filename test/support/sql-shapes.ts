/**
 * The shapes of statements that a sharded PostgreSQL refuses (docs/decisions/083): what belongs to a session must
 * be asked for that session alone. The check reads the text of a statement, or of the body of a function.
 */
import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import { type HostAndPort } from "./broken-network.ts";

/** The tables that are divided by the id of the session. */
const NAMES =
  '"?(?:sessions|session_messages|session_events|session_texts|session_runs|session_tool_calls|indexed_sessions|imported_rows)\\b';
const TABLE = new RegExp(`(?:from|join|into|update|,)\\s+${NAMES}`);
/** Not only as the place of new rows. */
const JOINED = new RegExp(`(?:from|join|update|,)\\s+${NAMES}`);
const WRITE = new RegExp(`\\b(?:update|delete from|insert into)\\s+${NAMES}`);
const VOLATILE = /\b(?:clock_timestamp|timeofday|gen_random_uuid|random|nextval)\s*\(/;
const RECORDSET =
  /(?:from|join|,)\s*(?:lateral\s+)?(?:unnest|jsonb?_to_recordset|jsonb?_array_elements(?:_text)?|jsonb?_populate_recordset)\s*\(/;
/** Functions that are not immutable, where a sharded engine does not look for them: it evaluates them first. */
const STABLE =
  /\b(?:case|coalesce)\b.*(?:\b(?:now|statement_timestamp|transaction_timestamp)\s*\(|[+-] interval\b)/;
const LOCK = /\bfor (?:no key )?update\b|\bfor (?:key )?share\b/;
/** The one session, as a parameter of the statement or of the function. */
const NAMED = /\b"?(?:session_id|id)"? = (?:\$\d+|[a-z]+_id)\b/;
/** A function of ours that reads or writes tables. */
const FUNCTION = /\bledger_(?!labels\b)[a-z_]+\s*\(/;
const COLUMN = /^(?:\w+\.|"\w+"\.)?(?:"?\w*[a-z_]\w*"?|\*)(?: as "?\w+"?)?$/;

type Shape =
  | "setting"
  | "volatile"
  | "stable"
  | "empty"
  | "correlated"
  | "returning"
  | "recordset"
  | "lateral"
  | "lock"
  | "function";

/** The shapes of one statement without a `;`. */
export function shapesOf(statement: string): readonly Shape[] {
  const text = plain(statement);
  if (!TABLE.test(text)) return [];
  const shapes: Shape[] = [];
  if (WRITE.test(text) && VOLATILE.test(text)) shapes.push("volatile");
  if (/\bupdate\b/.test(text) && STABLE.test(text)) shapes.push("stable");
  if (/(?:from|join|,) \(\s*select from\b/.test(text)) shapes.push("empty");
  if (returnedBy(text).some((column) => !COLUMN.test(column))) shapes.push("returning");
  if (NAMED.test(text) && /\bsession_id = [a-z]+\.(?:session_)?id\b/.test(text))
    shapes.push("correlated");
  if (RECORDSET.test(text) && JOINED.test(text) && !NAMED.test(text)) shapes.push("recordset");
  if (/\blateral \(/.test(text)) shapes.push("lateral");
  if (LOCK.test(text) && !NAMED.test(text)) shapes.push("lock");
  if (/\bvalues\s*\(.*\(\s*(?:select|with)\b/.test(text)) shapes.push("lock");
  if (FUNCTION.test(text)) shapes.push("function");
  return shapes;
}

/** The shapes of all statements of a body in PL/pgSQL; the query of a FOR ends at LOOP. */
export function shapesOfBody(body: string): readonly Shape[] {
  return [
    ...new Set(
      plain(body)
        .split(/;|\bloop\b/)
        .flatMap(shapesOf),
    ),
  ];
}

/** In lower case, without comments and texts, with single spaces. */
function plain(statement: string): string {
  return statement
    .replaceAll(/--[^\n]*/g, " ")
    .replaceAll(/'(?:[^']|'')*'/g, "''")
    .replaceAll(/\s+/g, " ")
    .trim()
    .toLowerCase();
}

/** What each RETURNING has, up to INTO or the end of its query. */
function returnedBy(text: string): readonly string[] {
  return text
    .split(/\breturning\b/)
    .slice(1)
    .flatMap((rest) => {
      const items = [""];
      let depth = 0;
      for (const char of rest.split(/\binto\b/)[0] ?? "") {
        if (char === "(") depth += 1;
        if (char === ")") depth -= 1;
        if (depth < 0) break;
        if (char === "," && depth === 0) items.push("");
        else items.push(`${items.pop() ?? ""}${char}`);
      }
      return items.map((item) => item.trim());
    });
}

export interface StatementTap {
  readonly port: number;
  /** Every text that was sent to be parsed. */
  readonly statements: ReadonlySet<string>;
  stop(): Promise<void>;
}

/** A way to a PostgreSQL without TLS that reads the statements which pass it. */
export async function startStatementTap(to: HostAndPort): Promise<StatementTap> {
  const statements = new Set<string>();
  const sockets = new Set<Socket>();
  const listener = createServer((client) => {
    const server = connect(to);
    const read = reader((text) => statements.add(text));
    client.on("data", read);
    client.pipe(server);
    server.pipe(client);
    for (const socket of [client, server]) {
      sockets.add(socket);
      socket.on("error", () => socket.destroy());
      socket.on("close", () => {
        sockets.delete(socket);
        client.destroy();
        server.destroy();
      });
    }
  });
  listener.listen(0, "127.0.0.1");
  await once(listener, "listening");
  const address = listener.address();
  if (address === null || typeof address === "string") throw new Error("it has no port");
  return {
    port: address.port,
    statements,
    async stop() {
      listener.close();
      for (const socket of sockets) socket.destroy();
      await once(listener, "close");
    },
  };
}

/** Messages of a client have a letter and a length; the first message has no letter. */
function reader(onStatement: (text: string) => void): (chunk: Buffer) => void {
  let rest = Buffer.alloc(0);
  let isFirst = true;
  return (chunk) => {
    rest = Buffer.concat([rest, chunk]);
    for (;;) {
      const head = isFirst ? 0 : 1;
      if (rest.length < head + 4) return;
      const end = head + rest.readInt32BE(head);
      if (rest.length < end) return;
      const [type, body] = [rest.toString("latin1", 0, head), rest.subarray(head + 4, end)];
      if (type === "Q") onStatement(textAt(body, 0));
      if (type === "P") onStatement(textAt(body, body.indexOf(0) + 1));
      isFirst = false;
      rest = rest.subarray(end);
    }
  };
}

function textAt(body: Buffer, start: number): string {
  return body.toString("utf8", start, body.indexOf(0, start));
}
