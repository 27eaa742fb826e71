import { useCallback, useRef, useState } from "react";
import type { Connection } from "../api/connection.ts";
import { useConnection } from "../api/use-connection.ts";

interface Sending<T, A> {
  /** Does nothing while an earlier one is on its way: a second click sends nothing. */
  readonly send: (what: T, onDone?: (answer: A) => void) => void;
  readonly isSending: boolean;
  readonly error: unknown;
  readonly forget: () => void;
}

/** One request at a time, with its error. */
export function useSending<T, A>(
  request: (connection: Connection, what: T) => Promise<A>,
): Sending<T, A> {
  const connection = useConnection();
  const [isSending, setIsSending] = useState(false);
  const [error, setError] = useState<unknown>();
  const isOut = useRef(false);
  const send = useCallback(
    (what: T, onDone?: (answer: A) => void) => {
      if (isOut.current) return;
      isOut.current = true;
      setIsSending(true);
      setError(undefined);
      request(connection, what)
        .then(
          (answer) => onDone?.(answer),
          (failure: unknown) => setError(failure),
        )
        .finally(() => {
          isOut.current = false;
          setIsSending(false);
        });
    },
    [connection, request],
  );
  return { send, isSending, error, forget: useCallback(() => setError(undefined), []) };
}
