/** The files that a person adds to a message: by the button, by paste and by drop. */
import { type ChangeEvent, type RefObject, useEffect, useRef, useState } from "react";
import { type AttachedFile, FILES_BYTES_MAX } from "../model/sending.ts";
import { Button } from "../ui/button.tsx";
import { bytes } from "../ui/format.ts";
import { visible } from "../ui/text.ts";
import { PICTURE } from "./parts.tsx";
import "./attach.css";

export interface Attachments {
  readonly files: readonly AttachedFile[];
  readonly add: (files: Iterable<File>) => void;
  readonly remove: (index: number) => void;
  readonly clear: () => void;
  /** Why the last files were not taken. */
  readonly problem: Error | undefined;
}

export function useAttachments(): Attachments {
  const [files, setFiles] = useState<readonly AttachedFile[]>([]);
  const [problem, setProblem] = useState<Error>();
  const read = async (chosen: readonly File[]): Promise<void> => {
    const size = chosen.reduce((sum, file) => sum + file.size, 0);
    if (size + files.reduce((sum, file) => sum + sizeOf(file), 0) > FILES_BYTES_MAX) {
      setProblem(
        new Error(`The files of a message have at most ${bytes(FILES_BYTES_MAX)} together.`),
      );
      return;
    }
    const added = await Promise.all(chosen.map(readFile));
    setProblem(undefined);
    setFiles((before) => [...before, ...added]);
  };
  return {
    files,
    problem,
    add: (chosen) => {
      const list = [...chosen];
      if (list.length > 0)
        read(list).catch((error: unknown) => setProblem(new Error(String(error))));
    },
    remove: (index) => setFiles((before) => before.filter((_, at) => at !== index)),
    clear: () => {
      setFiles([]);
      setProblem(undefined);
    },
  };
}

async function readFile(file: File): Promise<AttachedFile> {
  const content = new Uint8Array(await file.arrayBuffer());
  let text = "";
  // In pieces: a call takes a bounded number of arguments.
  for (let at = 0; at < content.length; at += 8_192)
    text += String.fromCharCode(...content.subarray(at, at + 8_192));
  const mimeType = file.type === "" ? "application/octet-stream" : file.type;
  return { name: file.name, mimeType, data: btoa(text) };
}

function sizeOf({ data }: AttachedFile): number {
  return Math.floor((data.length * 3) / 4);
}

export function AttachButton({ add }: Pick<Attachments, "add">) {
  const input = useRef<HTMLInputElement>(null);
  const choose = ({ target }: ChangeEvent<HTMLInputElement>): void => {
    add(target.files ?? []);
    target.value = ""; // The same file may be chosen again.
  };
  return (
    <span className="talk-attach">
      <input
        ref={input}
        type="file"
        multiple
        hidden
        aria-label="Files to attach"
        onChange={choose}
      />
      <Button aria-label="Attach files" title="Attach files" onClick={() => input.current?.click()}>
        +
      </Button>
    </span>
  );
}

interface AttachedFilesProps extends Pick<Attachments, "files" | "remove"> {
  /** Gets the focus after the last file is removed. */
  readonly next: RefObject<HTMLElement | null>;
}

export function AttachedFiles({ files, remove, next }: AttachedFilesProps) {
  const list = useRef<HTMLUListElement>(null);
  const removed = useRef<number>(undefined);
  // A removed button would take the focus with it.
  useEffect(() => {
    if (removed.current === undefined) return;
    const buttons = [...(list.current?.querySelectorAll("button") ?? [])];
    (buttons[removed.current] ?? buttons.at(-1) ?? next.current)?.focus();
    removed.current = undefined;
  });
  if (files.length === 0) return null;
  return (
    <ul ref={list} className="attach-list" aria-label="Attached files">
      {files.map((file, index) => (
        <li key={`${index} ${file.name}`} className="attach-file">
          {PICTURE.test(file.mimeType) && (
            <img alt="" src={`data:${file.mimeType};base64,${file.data}`} />
          )}
          <bdi>{visible(file.name)}</bdi>
          <span>{bytes(sizeOf(file))}</span>
          <Button
            look="plain"
            aria-label={`Remove ${visible(file.name)}`}
            onClick={() => {
              removed.current = index;
              remove(index);
            }}
          >
            ✕
          </Button>
        </li>
      ))}
    </ul>
  );
}
