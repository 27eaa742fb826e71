import type { ReactNode } from "react";
import "./empty.css";

/** Stands where there is nothing to show: says why, and what can be done. */
export function Empty({
  title,
  children,
}: {
  readonly title: string;
  readonly children?: ReactNode;
}) {
  return (
    <div className="empty">
      <p className="empty-title">{title}</p>
      {children}
    </div>
  );
}
