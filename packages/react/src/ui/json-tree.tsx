/**
 * A JSON value as a tree: closed below a depth, long lists in parts, long texts cut, and texts that are
 * JSON objects or arrays as trees too. The places of marked changes are open.
 */
import { useMemo, useState } from "react";
import { parseExact } from "@session-ledger/agui/exact-json";
import { isObject } from "@session-ledger/agui/json";
import { Button } from "./button.tsx";
import { count } from "./format.ts";
import { LongText } from "./long-text.tsx";
import { visible } from "./text.ts";
import "./json-tree.css";

const OPEN_DEPTH = 2;
const MEMBERS_SHOWN = 100;
const TEXT_CHARS_MAX = 1_000;
/** Of what a change has replaced or removed. */
const BEFORE_CHARS_MAX = 120;
const SUMMARY_CHARS_MAX = 60;
/** A larger text is not parsed before it is asked for. */
const PARSED_CHARS_MAX = 2_000_000;

/** Changes of a value, by JSON pointers. */
export interface JsonMarks {
  /** `before` is undefined for an added value. */
  readonly changed: ReadonlyMap<string, { readonly before: unknown }>;
  /** What an object or array had before, by its pointer. */
  readonly removed: ReadonlyMap<string, readonly (readonly [string, unknown])[]>;
  /** Objects and arrays with a change inside. */
  readonly around: ReadonlySet<string>;
}

export interface JsonTreeProps {
  readonly value: unknown;
  /** Levels that are open at first. */
  readonly openDepth?: number;
  readonly marks?: JsonMarks;
}

const NO_MARKS: JsonMarks = { changed: new Map(), removed: new Map(), around: new Set() };

export function JsonTree({ value, openDepth = OPEN_DEPTH, marks = NO_MARKS }: JsonTreeProps) {
  return (
    <div className="json-tree">
      <Node name={undefined} value={value} path="" depth={0} openDepth={openDepth} marks={marks} />
    </div>
  );
}

/** The JSON pointer of a member. */
export function pointerTo(path: string, key: string | number): string {
  return `${path}/${String(key).replaceAll("~", "~0").replaceAll("/", "~1")}`;
}

/** A JSON text as a tree, and any other text as it is. */
export function JsonText({
  text,
  openDepth,
}: {
  readonly text: string;
  readonly openDepth?: number;
}) {
  const parsed = text.length > PARSED_CHARS_MAX ? undefined : parse(text);
  if (parsed === undefined) {
    return (
      <pre className="json-tree json-tree-raw">
        <LongText text={text} />
      </pre>
    );
  }
  return <JsonTree value={parsed.value} {...(openDepth !== undefined && { openDepth })} />;
}

function parse(text: string): { readonly value: unknown } | undefined {
  try {
    return { value: parseExact(text) };
  } catch {
    return undefined;
  }
}

interface NodeProps {
  readonly name: string | undefined;
  readonly value: unknown;
  /** A JSON pointer. */
  readonly path: string;
  readonly depth: number;
  readonly openDepth: number;
  readonly marks: JsonMarks;
}

function Node(props: NodeProps) {
  const { name, value, path, marks } = props;
  const removed = marks.removed.get(path) ?? [];
  if (isContainer(value) && (!isEmpty(value) || removed.length > 0))
    return <Branch {...props} value={value} removed={removed} />;
  const mark = marks.changed.get(path);
  if (typeof value === "string" && mark === undefined && LIKE_JSON.test(value))
    return <Text {...props} value={value} />;
  return <LeafOf name={name} value={value} mark={mark} />;
}

const LIKE_JSON = /^\s*[[{][^]*[\]}]\s*$/;

/** A text that may be JSON itself. */
function Text(props: NodeProps & { readonly value: string }) {
  const { name, value } = props;
  const inside = useMemo(
    () => (value.length > PARSED_CHARS_MAX ? undefined : parse(value)?.value),
    [value],
  );
  if (!isContainer(inside) || isEmpty(inside))
    return <LeafOf name={name} value={value} mark={undefined} />;
  return <Branch {...props} value={inside} isText removed={[]} />;
}

interface LeafProps extends Pick<NodeProps, "name" | "value"> {
  readonly mark: { readonly before: unknown } | undefined;
}

function LeafOf({ name, value, mark }: LeafProps) {
  return (
    <div className={`json-tree-leaf${mark === undefined ? "" : " json-tree-changed"}`}>
      <Mark mark={mark} />
      <Name name={name} />
      {mark?.before !== undefined && (
        <del>
          <Leaf value={mark.before} charsMax={BEFORE_CHARS_MAX} />
        </del>
      )}
      <Leaf value={value} />
    </div>
  );
}

/** Shows the meaning of the colour also as a shape and a word. */
function Mark({ mark }: { readonly mark: { readonly before: unknown } | undefined }) {
  if (mark === undefined) return null;
  const isAdded = mark.before === undefined;
  return (
    <>
      <span className="json-tree-mark" aria-hidden="true">
        {isAdded ? "+" : "±"}
      </span>
      <span className="unseen">{isAdded ? "added: " : "changed: "}</span>
    </>
  );
}

function isContainer(value: unknown): value is object {
  return isObject(value) || Array.isArray(value);
}

function isEmpty(value: object): boolean {
  return Object.keys(value).length === 0;
}

interface BranchProps extends NodeProps {
  readonly value: object;
  readonly removed: readonly (readonly [string, unknown])[];
  /** It stands as a text in the value around it. */
  readonly isText?: true;
}

function Branch({ name, value, path, depth, openDepth, marks, removed, isText }: BranchProps) {
  const [chosen, setChosen] = useState<boolean>();
  const [shown, setShown] = useState(MEMBERS_SHOWN);
  const keys = Object.keys(value);
  const isList = Array.isArray(value);
  const isOpen = chosen ?? (depth < openDepth || marks.around.has(path));
  const mark = marks.changed.get(path);
  return (
    <details open={isOpen} className={mark === undefined ? undefined : "json-tree-changed"}>
      <summary
        onClick={(event) => {
          event.preventDefault(); // The attribute follows the state, and not the other way.
          setChosen(!isOpen);
        }}
      >
        <Mark mark={mark} />
        <Name name={name} />
        <span className="json-tree-summary">{summary(value, keys)}</span>
        {isText && <span className="json-tree-summary"> in a text</span>}
      </summary>
      {isOpen && (
        <div className="json-tree-members">
          {keys.slice(0, shown).map((key) => (
            <Node
              key={key}
              name={nameIn(key, isList)}
              value={Reflect.get(value, key)}
              path={pointerTo(path, key)}
              depth={depth + 1}
              openDepth={openDepth}
              marks={marks}
            />
          ))}
          {keys.length > shown && (
            <Button look="plain" onClick={() => setShown(shown + 10 * MEMBERS_SHOWN)}>
              {count(keys.length - shown)} more
            </Button>
          )}
          {removed.slice(0, MEMBERS_SHOWN).map(([key, before]) => (
            <div key={key} className="json-tree-leaf json-tree-removed">
              <span className="json-tree-mark" aria-hidden="true">
                −
              </span>
              <span className="unseen">removed: </span>
              <del>
                <Name name={nameIn(key, isList)} />
                <Leaf value={before} charsMax={BEFORE_CHARS_MAX} />
              </del>
            </div>
          ))}
        </div>
      )}
    </details>
  );
}

function nameIn(key: string, isList: boolean): string {
  return isList ? key : JSON.stringify(key).slice(1, -1);
}

function summary(value: object, keys: readonly string[]): string {
  if (Array.isArray(value)) return `[${count(keys.length)}]`;
  const text = keys.slice(0, 8).join(", ");
  const short = text.length > SUMMARY_CHARS_MAX ? `${text.slice(0, SUMMARY_CHARS_MAX)}…` : text;
  return visible(`{${short}${keys.length > 8 ? ", …" : ""}}`);
}

function Name({ name }: { readonly name: string | undefined }) {
  if (name === undefined) return null;
  return (
    <span className="json-tree-name">
      <bdi>{visible(name)}</bdi>:{" "}
    </span>
  );
}

function Leaf({
  value,
  charsMax = TEXT_CHARS_MAX,
}: {
  readonly value: unknown;
  readonly charsMax?: number;
}) {
  if (typeof value === "string") {
    return (
      <span className="json-tree-text">
        "<LongText text={value} charsMax={charsMax} />"
      </span>
    );
  }
  if (isContainer(value)) {
    const keys = Object.keys(value);
    if (keys.length > 0) return summary(value, keys);
    return Array.isArray(value) ? "[]" : "{}";
  }
  return <span className="json-tree-value">{JSON.stringify(value) ?? "undefined"}</span>;
}
