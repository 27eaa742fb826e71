/** The agent's questions that wait for an answer, each with the form that it asks for. */
import { type FormEvent, useState } from "react";
import { isObject, type JsonObject } from "@session-ledger/agui/json";
import { GRAPH_INTERRUPT_ID } from "@session-ledger/agui/run-end";
import { approvalPayload, type Asked, askedBy, formPayload } from "../model/asked.ts";
import type { Answer } from "../model/sending.ts";
import { Button } from "../ui/button.tsx";
import { JsonText, JsonTree } from "../ui/json-tree.tsx";
import { visible } from "../ui/text.ts";
import "./interrupts.css";

export type Answers = readonly (readonly [interruptId: string, answer: Answer])[];

interface InterruptsProps {
  readonly interrupts: readonly JsonObject[];
  /** The tool call that each asks about, where the page does not show it elsewhere. */
  readonly calls?: readonly AskedCall[];
  readonly isSending: boolean;
  /** All questions are answered at once: the next run needs every answer. */
  readonly send: (answers: Answers) => void;
}

export interface AskedCall {
  /** Empty: not known. */
  readonly name: string;
  /** JSON text, or its beginning. */
  readonly args: string;
}

export function Interrupts({ interrupts, calls = [], isSending, send }: InterruptsProps) {
  const [given, setGiven] = useState<ReadonlyMap<string, Answer>>(new Map());
  const ids = interrupts.map(({ id }) => String(id));
  const answer = (id: string, one: Answer): void => {
    const all = new Map(given).set(id, one);
    setGiven(all);
    if (ids.every((other) => all.has(other)))
      send([...all].filter(([other]) => ids.includes(other)));
  };
  return (
    <section className="interrupts" aria-label="Questions of the agent">
      {interrupts.map((interrupt, index) => {
        const id = String(interrupt["id"]);
        return (
          <Question
            key={id}
            interrupt={interrupt}
            call={calls[index]}
            given={given.get(id)}
            isSending={isSending}
            answer={(one) => answer(id, one)}
          />
        );
      })}
      {interrupts.length > 1 && (
        <p className="interrupts-hint">
          {given.size} of {interrupts.length} answered. The answers are sent together.
        </p>
      )}
    </section>
  );
}

interface QuestionProps {
  readonly interrupt: JsonObject;
  readonly call: AskedCall | undefined;
  readonly given: Answer | undefined;
  readonly isSending: boolean;
  readonly answer: (answer: Answer) => void;
}

function Question({ interrupt, call, given, isSending, answer }: QuestionProps) {
  const { reason, message, metadata, expiresAt, toolCallId } = interrupt;
  const asked = askedBy(interrupt);
  const isOfGraph = interrupt["id"] === GRAPH_INTERRUPT_ID;
  const resolve = (payload: unknown): void => answer({ status: "resolved", payload });
  return (
    <fieldset className="interrupts-question" disabled={isSending}>
      <legend>
        The agent asks{typeof reason === "string" && reason !== "" ? `: ${visible(reason)}` : ""}
      </legend>
      {typeof message === "string" && <p dir="auto">{visible(message)}</p>}
      {call !== undefined && call.name !== "" && (
        <div className="interrupts-call">
          <code>{visible(call.name)}</code>
          {call.args !== "" && <JsonText text={call.args} openDepth={2} />}
        </div>
      )}
      {typeof toolCallId === "string" && (call?.name ?? "") === "" && (
        <p className="interrupts-hint">
          About the tool call <code>{visible(toolCallId)}</code>
        </p>
      )}
      {isObject(metadata) && Object.keys(metadata).length > 0 && <JsonTree value={metadata} />}
      {typeof expiresAt === "string" && (
        <p className="interrupts-hint">Wanted before {visible(expiresAt)}</p>
      )}
      <AnswerForm asked={asked} resolve={resolve}>
        {!isOfGraph && (
          <Button onClick={() => answer({ status: "cancelled" })}>Do not answer</Button>
        )}
      </AnswerForm>
      {isOfGraph && (
        <p className="interrupts-hint">
          Its graph gets an object, a list, true or false as JSON, and anything else as text.
        </p>
      )}
      {given !== undefined && !isSending && (
        <p className="interrupts-hint" role="status">
          {given.status === "cancelled" ? "Not answered" : "Answered"}; you can still change it.
        </p>
      )}
    </fieldset>
  );
}

interface AnswerFormProps {
  readonly asked: Asked;
  readonly resolve: (payload: unknown) => void;
  readonly children: React.ReactNode;
}

function AnswerForm({ asked, resolve, children }: AnswerFormProps) {
  switch (asked.kind) {
    case "approval":
      return (
        <div className="interrupts-buttons">
          <Button look="primary" onClick={() => resolve(approvalPayload(asked, true))}>
            Approve
          </Button>
          <Button onClick={() => resolve(approvalPayload(asked, false))}>Deny</Button>
          {children}
        </div>
      );
    case "choice":
      return (
        <div className="interrupts-buttons">
          {asked.choices.map((choice) => (
            <Button key={choice} onClick={() => resolve(choice)}>
              {visible(choice)}
            </Button>
          ))}
          {children}
        </div>
      );
    case "fields":
      return (
        <FieldsForm fields={asked.fields} resolve={resolve}>
          {children}
        </FieldsForm>
      );
    case "text":
    case "json":
      return (
        <TextForm isJson={asked.kind === "json"} resolve={resolve}>
          {children}
        </TextForm>
      );
  }
}

interface FieldsFormProps extends Omit<AnswerFormProps, "asked"> {
  readonly fields: Extract<Asked, { kind: "fields" }>["fields"];
}

function FieldsForm({ fields, resolve, children }: FieldsFormProps) {
  const submit = (event: FormEvent<HTMLFormElement>): void => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const valueOf = (name: string): string => {
      const given = form.get(`answer-${name}`);
      return typeof given === "string" ? given : "";
    };
    resolve(formPayload(fields, valueOf));
  };
  return (
    <form className="interrupts-fields" onSubmit={submit}>
      {fields.map((field) => (
        <label key={field.name}>
          <span>
            {visible(field.title)}
            {field.isRequired && " (required)"}
          </span>
          <FieldInput field={field} />
          {field.about !== undefined && <small>{visible(field.about)}</small>}
        </label>
      ))}
      <div className="interrupts-buttons">
        <Button type="submit" look="primary">
          Answer
        </Button>
        {children}
      </div>
    </form>
  );
}

function FieldInput({ field }: { field: FieldsFormProps["fields"][number] }) {
  const { kind, isRequired, choices } = field;
  const name = `answer-${field.name}`;
  switch (kind) {
    case "yes_no":
      return <input type="checkbox" name={name} />;
    case "number":
      return <input type="number" step="any" name={name} required={isRequired} />;
    case "text":
      return <input type="text" name={name} required={isRequired} dir="auto" />;
    case "choice":
      return (
        <select name={name} required={isRequired} defaultValue="">
          <option value="">Choose</option>
          {choices.map((choice) => (
            <option key={choice} value={choice}>
              {visible(choice)}
            </option>
          ))}
        </select>
      );
  }
}

interface TextFormProps extends Omit<AnswerFormProps, "asked"> {
  readonly isJson: boolean;
}

function TextForm({ isJson, resolve, children }: TextFormProps) {
  const [text, setText] = useState("");
  const [problem, setProblem] = useState<string>();
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    if (!isJson) return resolve(text);
    try {
      resolve(JSON.parse(text));
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error));
    }
  };
  return (
    <form className="interrupts-fields" onSubmit={submit}>
      <textarea
        aria-label={isJson ? "Answer as JSON" : "Answer"}
        placeholder={isJson ? "Answer as JSON" : "Answer"}
        rows={isJson ? 4 : 2}
        dir="auto"
        required
        value={text}
        onChange={({ target }) => {
          setText(target.value);
          setProblem(undefined);
        }}
      />
      {problem !== undefined && <p role="alert">{problem}</p>}
      <div className="interrupts-buttons">
        <Button type="submit" look="primary">
          Answer
        </Button>
        {children}
      </div>
    </form>
  );
}
