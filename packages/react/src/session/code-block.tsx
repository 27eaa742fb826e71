import { useEffect, useState } from "react";
import { visible } from "../ui/text.ts";
import "./code-block.css";

const SHOWN_MS = 1_500;

export function CodeBlock({ text, language }: { text: string; language: string }) {
  const shown = text.replace(/\n$/, "");
  return (
    <figure className="code-block" dir="ltr">
      <figcaption>
        <span>{visible(language) || "text"}</span>
        <CopyButton text={shown} what="code" />
      </figcaption>
      <pre tabIndex={0}>
        <code>{visible(shown)}</code>
      </pre>
    </figure>
  );
}

/** Copies the text as it is, not as it is shown. */
export function CopyButton({ text, what }: { text: string; what: string }) {
  const [outcome, setOutcome] = useState<"copied" | "failed">();
  useEffect(() => {
    if (outcome === undefined) return undefined;
    const timer = setTimeout(() => setOutcome(undefined), SHOWN_MS);
    return () => clearTimeout(timer);
  }, [outcome]);
  const copy = (): void => {
    // Without https a page has no clipboard, except on this machine.
    const done = navigator.clipboard?.writeText(text) ?? Promise.reject(new Error("no clipboard"));
    done.then(
      () => setOutcome("copied"),
      () => setOutcome("failed"),
    );
  };
  return (
    <button type="button" className="copy-button" onClick={copy} aria-label={`Copy ${what}`}>
      <span aria-live="polite">{outcome ?? "copy"}</span>
    </button>
  );
}
