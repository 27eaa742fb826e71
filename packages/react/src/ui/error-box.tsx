import { ApiError } from "../api/errors.ts";
import { useConnection } from "../api/use-connection.ts";
import { Button } from "./button.tsx";
import { visible } from "./text.ts";
import "./error-box.css";

/** An error that a person should read, with a way to try again. */
export function ErrorBox({
  error,
  retry,
}: {
  readonly error: unknown;
  readonly retry?: () => void;
}) {
  const { mayAskAgain } = useConnection();
  const reason = error instanceof ApiError ? error.reason : "";
  const message = error instanceof Error ? error.message : "Something failed.";
  const violations = error instanceof ApiError ? error.violations : [];
  return (
    <div className="error-box" role="alert">
      <p>
        <span aria-hidden="true">✕</span> {visible(message)}{" "}
        {reason !== "" && <code>{visible(reason)}</code>}
      </p>
      {violations.length > 1 && (
        <ul>
          {violations.map(({ field, description }) => (
            <li key={`${field} ${description}`}>{visible(description)}</li>
          ))}
        </ul>
      )}
      {retry !== undefined && (
        <Button
          onClick={() => {
            mayAskAgain();
            retry();
          }}
        >
          Try again
        </Button>
      )}
    </div>
  );
}
