/** One route: its parameters, its body, its answers, and examples. */
import type { ReactNode } from "react";
import {
  type ApiDocument,
  type Content,
  curlOf,
  type Field,
  type Operation,
} from "../model/openapi.ts";
import { Button } from "../ui/button.tsx";
import { Link } from "../ui/link.tsx";
import { toast } from "../ui/toast.tsx";

interface OperationProps {
  readonly document: ApiDocument;
  readonly operation: Operation;
}

export function Shown({ document, operation }: OperationProps) {
  const { method, path, summary, description, parameters, body, answers } = operation;
  const json = body.find(({ type }) => type === "application/json");
  const example = json === undefined ? undefined : document.exampleOf(json.schema);
  return (
    <article className="docs-operation">
      <Link to="/docs" className="docs-back">
        ← All routes
      </Link>
      <header>
        <h2>{summary}</h2>
        <p className="docs-path">
          <Method method={method} /> <code>{path}</code>
        </p>
        {description !== "" && (
          <p>
            <Marked text={description} />
          </p>
        )}
      </header>
      <Code label="As a command" text={curlOf(operation, location.origin, example)} />
      {parameters.length > 0 && (
        <section aria-label="Parameters">
          <h3>Parameters</h3>
          <Fields fields={parameters.map((one) => ({ ...one, place: one.in }))} hasPlace />
        </section>
      )}
      {body.length > 0 && (
        <section aria-label="Body">
          <h3>Body</h3>
          {body.map((content) => (
            <Body key={content.type} document={document} content={content} />
          ))}
        </section>
      )}
      <section aria-label="Answers">
        <h3>Answers</h3>
        {answers.map(({ status, description: words, content }) => (
          <details key={status} className="docs-answer" open={status.startsWith("2")}>
            <summary>
              <code>{status}</code> <Marked text={words} />
            </summary>
            {content.map((one) => (
              <Body key={one.type} document={document} content={one} />
            ))}
          </details>
        ))}
      </section>
    </article>
  );
}

export function Method({ method }: { readonly method: string }) {
  return <code className={`docs-method docs-method-${method.toLowerCase()}`}>{method}</code>;
}

function Body({
  document,
  content,
}: {
  readonly document: ApiDocument;
  readonly content: Content;
}) {
  const { type, schema } = content;
  const fields = document.fields(schema);
  const example = document.exampleOf(schema);
  return (
    <div className="docs-body">
      <p className="docs-note">
        <code>{type}</code>: {document.typeOf(schema)}
      </p>
      {fields.length > 0 && <Fields fields={fields} />}
      {/[/+]json$/.test(type) && example !== undefined && (
        <Code label="Example" text={JSON.stringify(example, null, 2)} />
      )}
    </div>
  );
}

interface Placed extends Field {
  readonly place?: string;
}

function Fields({
  fields,
  hasPlace = false,
}: {
  readonly fields: readonly Placed[];
  readonly hasPlace?: boolean;
}) {
  return (
    <div className="docs-table">
      <table>
        <thead>
          <tr>
            <th scope="col">Name</th>
            {hasPlace && <th scope="col">In</th>}
            <th scope="col">Type</th>
            <th scope="col">Meaning</th>
          </tr>
        </thead>
        <tbody>
          {fields.map((field, at) => (
            // oxlint-disable-next-line react/no-array-index-key -- Two members may have one name.
            <tr key={at}>
              <th scope="row" style={{ paddingInlineStart: `${16 * field.depth}px` }}>
                <code>{field.name}</code>
                {field.isRequired && <span className="docs-required"> required</span>}
              </th>
              {hasPlace && <td className="docs-place">{field.place}</td>}
              <td className="docs-type">{field.type}</td>
              <td>
                <Marked text={field.description} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Text in back quotes is code. */
function Marked({ text }: { readonly text: string }): ReactNode {
  return text.split("`").map((part, at) =>
    // oxlint-disable-next-line react/no-array-index-key -- The parts of a text never move.
    at % 2 === 1 ? <code key={at}>{part}</code> : part,
  );
}

function Code({ label, text }: { readonly label: string; readonly text: string }) {
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(text);
      toast("Copied");
    } catch {
      toast("The browser does not allow copying.", "bad");
    }
  };
  return (
    <figure className="docs-code">
      <figcaption>
        {label}
        <Button look="plain" aria-label={`Copy: ${label}`} onClick={() => void copy()}>
          Copy
        </Button>
      </figcaption>
      {/* oxlint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- A keyboard must scroll it. */}
      <pre tabIndex={0}>{text}</pre>
    </figure>
  );
}
