/** What a tool was given and what it gave back, side by side, from the rows of its bar. */
import { useEffect, useState } from "react";
import { parseObject } from "@session-ledger/agui/json";
import type { Bar } from "../model/bars.ts";
import type { SessionLog } from "../model/log.ts";
import { useInSession } from "./in-session.ts";
import { resultText, Value } from "./tool-card.tsx";
import "./tool-details.css";

/** A call of more rows is cut: merged rows have thousands of pieces each. */
const ROWS_MAX = 200;

interface Call {
  readonly args: string;
  readonly result: string | undefined;
}

export function ToolDetails({ bar }: { readonly bar: Bar }) {
  const { log } = useInSession();
  const [call, setCall] = useState<Call>();
  const { id, fromSeq, toSeq } = bar;
  useEffect(() => {
    let isOver = false;
    readCall(log, { id, fromSeq, toSeq }).then(
      (read) => !isOver && setCall(read),
      () => !isOver && setCall({ args: "", result: undefined }),
    );
    return () => {
      isOver = true;
    };
  }, [log, id, fromSeq, toSeq]);
  if (call === undefined) return <p>Loading …</p>;
  return (
    <div className="tool-details">
      <Value title="Input" text={call.args} />
      {call.result === undefined ? (
        <p>No result in the log.</p>
      ) : (
        <Value title="Output" text={call.result} />
      )}
    </div>
  );
}

async function readCall(
  log: SessionLog,
  { id, fromSeq, toSeq }: Pick<Bar, "id" | "fromSeq" | "toSeq">,
): Promise<Call> {
  const from = log.indexOf(fromSeq);
  const rows = log.rows
    .slice(from, from + ROWS_MAX)
    .filter(({ seq, type }) => seq <= toSeq && type.startsWith("TOOL_CALL_"));
  const events = (await Promise.all(rows.map((row) => log.read(row))))
    .map((payload) => parseObject(payload ?? "{}"))
    .filter(({ toolCallId }) => toolCallId === id);
  const pieces = events.map(({ delta }) => (typeof delta === "string" ? delta : ""));
  const end = events.find(({ type }) => type === "TOOL_CALL_RESULT");
  return { args: pieces.join(""), result: end && resultText(end) };
}
