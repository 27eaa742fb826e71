import { useEffect, useRef } from "react";
import type { SessionProblem } from "../props.ts";

/** Reports each problem once. */
export function useProblem(
  problem: SessionProblem | undefined,
  report: ((problem: SessionProblem) => void) | undefined,
): void {
  const newest = useRef(report);
  useEffect(() => {
    newest.current = report;
  });
  const { reason, message } = problem ?? {};
  useEffect(() => {
    if (reason !== undefined && message !== undefined) newest.current?.({ reason, message });
  }, [reason, message]);
}
