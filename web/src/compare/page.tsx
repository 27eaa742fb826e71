/**
 * Two runs side by side, of one session or of two. The address names both: `a` and `b` are the
 * numbers of their first events, and `with` the session of the second one.
 */
import { type Compared, type Run, useFacts, useRuns } from "./runs.ts";
import { sessionPath, setQuery, usePlace } from "../router.ts";
import { Button } from "@session-ledger/react/components/ui/button";
import { Empty } from "@session-ledger/react/components/ui/empty";
import { ErrorBox } from "@session-ledger/react/components/ui/error-box";
import { Link } from "../ui/link.tsx";
import { LongText } from "@session-ledger/react/components/ui/long-text";
import { Choice } from "./choice.tsx";
import { Summary } from "./summary.tsx";
import { Texts } from "./texts.tsx";
import { Tools } from "./tools.tsx";
import "./compare.css";

export function ComparePage({ id }: { readonly id: string }) {
  const { query } = usePlace();
  const other = query.get("with") ?? id;
  const isOne = other === id;
  const left = useSide(id, query.get("a"), isOne ? 1 : 0);
  const right = useSide(other, query.get("b"), 0);
  const swap = (): void => {
    const [a, b] = [String(right.run?.first_seq ?? ""), String(left.run?.first_seq ?? "")];
    if (isOne) setQuery({ a, b });
  };
  return (
    <div className="compare">
      <header className="compare-head">
        <Link to={sessionPath(id)}>← Session</Link>
        <h1>Compare runs</h1>
        {isOne && (
          <Button disabled={left.run === undefined || right.run === undefined} onClick={swap}>
            <span aria-hidden="true">⇄</span> Swap
          </Button>
        )}
      </header>
      <div className="compare-sides">
        <Choice name="A" sessionId={id} side={left} choose={(seq) => setQuery({ a: seq })} />
        <Choice
          name="B"
          sessionId={other}
          side={right}
          choose={(seq) => setQuery({ b: seq })}
          chooseSession={(chosen) =>
            setQuery({ with: chosen === id ? undefined : chosen, b: undefined })
          }
        />
      </div>
      {isOne && !query.has("b") && left.runs?.length === 1 ? (
        <Empty title="This session has one run.">
          <p>Choose another session for B.</p>
        </Empty>
      ) : (
        <Both left={left} right={right} />
      )}
    </div>
  );
}

export interface Side {
  readonly runs: readonly Run[] | undefined;
  /** Undefined: neither the address nor the list has one. */
  readonly run: Run | undefined;
  readonly compared: Compared | undefined;
  readonly error: Error | null;
  readonly retry: () => void;
}

/** `place`: the run that is shown when the address names none; 0 is the newest. */
function useSide(sessionId: string, named: string | null, place: number): Side {
  const runs = useRuns(sessionId);
  const list = runs.data;
  const wanted = named === null || named === "" ? undefined : Number(named);
  const run =
    wanted === undefined
      ? list?.[Math.min(place, list.length - 1)]
      : list?.find(({ first_seq: first }) => first === wanted);
  const facts = useFacts(sessionId, run);
  return {
    runs: list,
    run,
    compared: facts.data,
    error: runs.error ?? facts.error,
    retry: () => void (runs.error === null ? facts.refetch() : runs.refetch()),
  };
}

function Both({ left, right }: { readonly left: Side; readonly right: Side }) {
  for (const { error, retry } of [left, right]) {
    if (error !== null) return <ErrorBox error={error} retry={retry} />;
  }
  if (left.runs?.length === 0) return <Empty title="This session has no run to compare." />;
  if (left.compared === undefined || right.compared === undefined) {
    const isChosen = left.run !== undefined && right.run !== undefined;
    const isLoading = left.runs === undefined || right.runs === undefined || isChosen;
    return isLoading ? (
      <p className="compare-note">Loading …</p>
    ) : (
      <Empty title="Choose two runs.">
        <p>
          {right.runs?.length === 0
            ? "The other session has no run."
            : "A run of the address does not exist."}
        </p>
      </Empty>
    );
  }
  const [a, b] = [left.compared.facts, right.compared.facts];
  return (
    <>
      <Questions left={a.question} right={b.question} />
      {!(left.compared.isWhole && right.compared.isWhole) && (
        <p className="compare-note">A run is too long: only its first 20,000 rows are compared.</p>
      )}
      <Summary left={a} right={b} />
      <Texts title="Text" left={a.text} right={b.text} />
      {(a.thinking !== "" || b.thinking !== "") && (
        <Texts title="Thinking" left={a.thinking} right={b.thinking} isClosed />
      )}
      <Tools left={a.tools} right={b.tools} />
    </>
  );
}

function Questions({
  left,
  right,
}: {
  readonly left: string | undefined;
  readonly right: string | undefined;
}) {
  if (left === undefined && right === undefined) return null;
  const same = left === right;
  return (
    <section className="compare-question" aria-labelledby="compare-question">
      <h2 id="compare-question">{same ? "The same question" : "Questions"}</h2>
      <Question text={left} />
      {!same && <Question text={right} />}
    </section>
  );
}

const QUESTION_CHARS_MAX = 500;

function Question({ text }: { readonly text: string | undefined }) {
  if (text === undefined) return <p className="compare-note">not known</p>;
  return (
    <blockquote dir="auto">
      <LongText text={text} charsMax={QUESTION_CHARS_MAX} />
    </blockquote>
  );
}
