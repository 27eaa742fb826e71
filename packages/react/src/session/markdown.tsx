/**
 * Text of users and agents as Markdown. Such a text is hostile: HTML in it stays text, a link goes
 * only to http, https and mailto, and a picture is a link, because its host would learn who looks.
 */
import { memo, type ReactNode, useDeferredValue, useState } from "react";
import ReactMarkdown, { type Components } from "react-markdown";
import remarkGfm from "remark-gfm";
import { Button } from "../ui/button.tsx";
import { count } from "../ui/format.ts";
import { cut, visible } from "../ui/text.ts";
import { CodeBlock } from "./code-block.tsx";
import "./markdown.css";

/** Above this a text is not parsed: the parser takes a second for a megabyte. */
const MARKDOWN_CHARS_MAX = 200_000;
/** The same for a text that grows: each piece of it is a new text. */
const LIVE_CHARS_MAX = 20_000;
/** A longer text is cut, with a button for the rest. */
const SHOWN_CHARS_MAX = 20_000;

const LINK = /^(?:https?:\/\/|mailto:)/i;

export function Markdown({ text, isLive = false }: { text: string; isLive?: boolean }) {
  const deferred = useDeferredValue(text);
  const shown = isLive ? deferred : text;
  const charsMax = isLive ? LIVE_CHARS_MAX : MARKDOWN_CHARS_MAX;
  return (
    <CutText text={shown}>
      {(part) =>
        part.length > charsMax ? (
          <pre className="markdown-plain" tabIndex={0}>
            {visible(part)}
          </pre>
        ) : (
          <Parsed text={part} />
        )
      }
    </CutText>
  );
}

/** Draws the beginning of a huge text, and all of it on request. */
function CutText({
  text,
  children,
}: {
  readonly text: string;
  readonly children: (part: string) => ReactNode;
}) {
  const [isWhole, setIsWhole] = useState(false);
  const shown = isWhole ? text : cut(text, SHOWN_CHARS_MAX);
  return (
    <>
      {children(shown)}
      {shown.length < text.length && (
        <Button onClick={() => setIsWhole(true)}>Show all {count(text.length)} characters</Button>
      )}
    </>
  );
}

const Parsed = memo(function Parsed({ text }: { text: string }) {
  return (
    <div className="markdown" dir="auto">
      <ReactMarkdown remarkPlugins={PLUGINS} urlTransform={safeUrl} components={COMPONENTS}>
        {visible(text)}
      </ReactMarkdown>
    </div>
  );
});

const PLUGINS = [remarkGfm];

function safeUrl(url: string): string {
  return LINK.test(url) ? url : "";
}

function Link({ href, children }: { href?: string | undefined; children?: ReactNode }) {
  // Also a link inside of the page, such as one to a footnote: several messages have the same ids.
  if (href === undefined || href === "") return <>{children}</>;
  return (
    <a href={href} target="_blank" rel="noopener noreferrer" title={visible(href)}>
      {children}
    </a>
  );
}

/** The page has its own headings above these. */
function heading(level: 4 | 5 | 6) {
  const Tag = `h${level}` as const;
  return ({ children }: { children?: ReactNode }) => <Tag>{children}</Tag>;
}

const COMPONENTS: Components = {
  a: ({ href, children }) => <Link href={href}>{children}</Link>,
  img: ({ src, alt }) => (
    <Link href={typeof src === "string" ? src : undefined}>Picture: {alt || "without a name"}</Link>
  ),
  h1: heading(4),
  h2: heading(5),
  h3: heading(6),
  h4: heading(6),
  h5: heading(6),
  h6: heading(6),
  input: ({ checked }) => (
    <span role="img" aria-label={checked === true ? "done" : "not done"}>
      {checked === true ? "☑" : "☐"}
    </span>
  ),
  table: ({ children }) => (
    <div className="markdown-table" tabIndex={0}>
      <table>{children}</table>
    </div>
  ),
  pre: ({ node }) => {
    const code = node?.children[0];
    if (code?.type !== "element") return null;
    const [text] = code.children;
    const names = code.properties["className"];
    const language = Array.isArray(names) ? names.join(" ").replace("language-", "") : "";
    return <CodeBlock text={text?.type === "text" ? text.value : ""} language={language} />;
  },
};
