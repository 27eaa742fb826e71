/**
 * A JSON value as a tree: closed below a depth, long lists in parts, long texts cut. Text that is
 * not JSON is shown as text.
 */
import { useState } from "react";
import { Button } from "./button.tsx";
import { count } from "./format.ts";
import { LongText } from "./long-text.tsx";
import { visible } from "./text.ts";
import "./json-tree.css";

const OPEN_DEPTH = 2;
const MEMBERS_SHOWN = 100;
const TEXT_CHARS_MAX = 1_000;
const SUMMARY_CHARS_MAX = 60;
/** A larger text is not parsed before it is asked for. */
const PARSED_CHARS_MAX = 2_000_000;

export interface JsonTreeProps {
  readonly value: unknown;
  /** Levels that are open at first. */
  readonly openDepth?: number;
}

export function JsonTree({ value, openDepth = OPEN_DEPTH }: JsonTreeProps) {
  return (
    <div className="json-tree">
      <Node name={undefined} value={value} depth={0} openDepth={openDepth} />
    </div>
  );
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
    return { value: JSON.parse(text) };
  } catch {
    return undefined;
  }
}

interface NodeProps {
  readonly name: string | undefined;
  readonly value: unknown;
  readonly depth: number;
  readonly openDepth: number;
}

function Node({ name, value, depth, openDepth }: NodeProps) {
  if (typeof value !== "object" || value === null || isEmpty(value)) {
    return (
      <div className="json-tree-leaf">
        <Name name={name} />
        <Leaf value={value} />
      </div>
    );
  }
  return <Branch name={name} value={value} depth={depth} openDepth={openDepth} />;
}

function isEmpty(value: object): boolean {
  return Object.keys(value).length === 0;
}

function Branch({ name, value, depth, openDepth }: NodeProps & { readonly value: object }) {
  const [isOpen, setOpen] = useState(depth < openDepth);
  const [shown, setShown] = useState(MEMBERS_SHOWN);
  const keys = Object.keys(value);
  const isList = Array.isArray(value);
  return (
    <details open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <Name name={name} />
        <span className="json-tree-summary">{summary(value, keys)}</span>
      </summary>
      {isOpen && (
        <div className="json-tree-members">
          {keys.slice(0, shown).map((key) => (
            <Node
              key={key}
              name={isList ? key : JSON.stringify(key).slice(1, -1)}
              value={Reflect.get(value, key)}
              depth={depth + 1}
              openDepth={openDepth}
            />
          ))}
          {keys.length > shown && (
            <Button look="plain" onClick={() => setShown(shown + 10 * MEMBERS_SHOWN)}>
              {count(keys.length - shown)} more
            </Button>
          )}
        </div>
      )}
    </details>
  );
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

function Leaf({ value }: { readonly value: unknown }) {
  if (typeof value === "string") {
    return (
      <span className="json-tree-text">
        "<LongText text={value} charsMax={TEXT_CHARS_MAX} />"
      </span>
    );
  }
  if (typeof value === "object" && value !== null) return Array.isArray(value) ? "[]" : "{}";
  return <span className="json-tree-value">{String(value)}</span>;
}
