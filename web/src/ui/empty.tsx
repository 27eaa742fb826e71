import type { ReactNode } from "react";
import "./empty.css";

/** Stands where there is nothing to show: says why, and what can be done. */
export function Empty({
  title,
  role,
  children,
}: {
  readonly title: string;
  readonly role?: "alert";
  readonly children?: ReactNode;
}) {
  return (
    <div className="empty" role={role}>
      <p className="empty-title">{title}</p>
      {children}
    </div>
  );
}
