/** The title of the page: what it shows, and how many questions wait for a person. */
import { useEffect } from "react";

let shown = "";
let waiting = 0;

function write(): void {
  document.title = `${waiting === 0 ? "" : `(${waiting}) `}${shown} · session-ledger`;
}

export function showTitle(title: string): void {
  shown = title;
  write();
}

export function useTitle(title: string): void {
  useEffect(() => showTitle(title), [title]);
}

export function useWaitingInTitle(count: number): void {
  useEffect(() => {
    waiting = count;
    write();
  }, [count]);
}
