import type { StreamState } from "../api/stream.ts";
import "./connection.css";

const WORDS: Record<StreamState, string> = {
  connecting: "connecting",
  open: "live",
  reconnecting: "reconnecting",
  paused: "paused",
  ended: "ended",
};

const SIGNS: Record<StreamState, string> = {
  connecting: "◌",
  open: "●",
  reconnecting: "△",
  paused: "‖",
  ended: "✕",
};

/** Whether what is shown is current. Told to a person who cannot see it when it changes. */
export function Connection({ state }: { readonly state: StreamState }) {
  return (
    <span className={`connection connection-${state}`} role="status">
      <span aria-hidden="true">{SIGNS[state]}</span> {WORDS[state]}
    </span>
  );
}

/** Across the page while the service does not answer. */
export function ConnectionNotice({ state }: { readonly state: StreamState }) {
  return (
    <div role="status">
      {state === "reconnecting" && (
        <p className="connection-notice">
          <span aria-hidden="true">△</span> The connection to the service is lost. The page tries
          again, and continues where it was.
        </p>
      )}
    </div>
  );
}
