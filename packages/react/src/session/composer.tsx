/** Writes a message of a person, with files by the button, by paste and by drop. */
import {
  type ClipboardEvent,
  type DragEvent,
  type FormEvent,
  type KeyboardEvent,
  useId,
  useRef,
  useState,
} from "react";
import { SendKeys } from "../model/sending.ts";
import { Button } from "../ui/button.tsx";
import { ErrorBox } from "../ui/error-box.tsx";
import { count } from "../ui/format.ts";
import { AttachButton, AttachedFiles, useAttachments } from "./attach.tsx";
import { sendMessage } from "./talk-api.ts";
import { useRemembered } from "./use-remembered.ts";
import { useSending } from "./use-sending.ts";

const ROWS_MAX = 8;
/** A text field with some megabytes stops the page for a minute. */
const MESSAGE_CHARS_MAX = 200_000;
const TOO_LONG = new Error(
  `The text was not taken: a message on this page has at most ${count(MESSAGE_CHARS_MAX)} characters.`,
);

export function Composer({ sessionId }: { readonly sessionId: string }) {
  const [text, setText] = useState("");
  const [name, setName] = useRemembered("talk.name", "");
  const keys = useRef(new SendKeys());
  const field = useRef<HTMLTextAreaElement>(null);
  const { send, isSending, error, forget } = useSending(sendMessage);
  const [isTooLong, setIsTooLong] = useState(false);
  const attachments = useAttachments();
  const { files, problem } = attachments;
  const [isOver, drop] = useDrop(attachments.add);
  const isEmpty = text.trim() === "" && files.length === 0;
  const submit = (event?: FormEvent): void => {
    event?.preventDefault();
    if (isEmpty) return;
    const key = keys.current.keyOf(JSON.stringify([text, files, name]));
    send({ sessionId, text, files, name: name.trim(), key }, () => {
      keys.current.stored();
      setText("");
      attachments.clear();
    });
  };
  const write = (typed: string): void => {
    setIsTooLong(typed.length > MESSAGE_CHARS_MAX);
    if (typed.length > MESSAGE_CHARS_MAX) return;
    setText(typed);
    forget();
  };
  const paste = (event: ClipboardEvent): void => {
    attachments.add(event.clipboardData.files);
    if (event.clipboardData.getData("text").length <= MESSAGE_CHARS_MAX) return;
    event.preventDefault();
    setIsTooLong(true);
  };
  return (
    <form
      className={`talk-composer${isOver ? " talk-composer-over" : ""}`}
      onSubmit={submit}
      {...drop}
    >
      {error !== undefined && <ErrorBox error={error} />}
      {problem !== undefined && <ErrorBox error={problem} />}
      {isTooLong && <ErrorBox error={TOO_LONG} />}
      <AttachedFiles files={files} remove={attachments.remove} next={field} />
      <textarea
        ref={field}
        aria-label="Message"
        placeholder="Write a message"
        rows={text.split("\n", ROWS_MAX).length}
        dir="auto"
        value={text}
        readOnly={isSending}
        onPaste={paste}
        onChange={({ target }) => write(target.value)}
        onKeyDown={(event) => isSend(event) && submit(event)}
      />
      <div className="talk-foot">
        <NameField name={name} setName={setName} />
        <AttachButton add={attachments.add} />
        <span className="talk-hint">Enter sends, Shift+Enter is a new line</span>
        <Button type="submit" look="primary" disabled={isSending || isEmpty}>
          {isSending ? "Sending…" : error === undefined ? "Send" : "Send again"}
        </Button>
      </div>
    </form>
  );
}

/** While an input method composes a word, Enter chooses it. */
function isSend({ key, shiftKey, nativeEvent }: KeyboardEvent): boolean {
  return key === "Enter" && !shiftKey && !nativeEvent.isComposing;
}

interface NameFieldProps {
  readonly name: string;
  readonly setName: (name: string) => void;
}

function NameField({ name, setName }: NameFieldProps) {
  const nameId = useId();
  return (
    <>
      <label htmlFor={nameId}>as</label>
      <input
        id={nameId}
        className="talk-name"
        placeholder="your name"
        autoComplete="name"
        dir="auto"
        maxLength={200}
        value={name}
        onChange={({ target }) => setName(target.value)}
      />
    </>
  );
}

/** True while files are above the form, and the handlers of the form. */
function useDrop(add: (files: Iterable<File>) => void) {
  const [isOver, setIsOver] = useState(false);
  const handlers = {
    onDragOver: (event: DragEvent): void => {
      event.preventDefault();
      setIsOver(true);
    },
    onDragLeave: (): void => setIsOver(false),
    onDrop: (event: DragEvent): void => {
      event.preventDefault();
      setIsOver(false);
      add(event.dataTransfer.files);
    },
  };
  return [isOver, handlers] as const;
}
