import type { ButtonHTMLAttributes, Ref } from "react";
import "./button.css";

export interface ButtonProps extends Omit<ButtonHTMLAttributes<HTMLButtonElement>, "className"> {
  /** `plain` has no border until it is pointed at. */
  readonly look?: "normal" | "primary" | "danger" | "plain";
  /** Pressed or not, for a button that switches something. */
  readonly pressed?: boolean;
  readonly ref?: Ref<HTMLButtonElement>;
}

export function Button({ look = "normal", pressed, type = "button", ...rest }: ButtonProps) {
  return (
    <button type={type} className={`button button-${look}`} aria-pressed={pressed} {...rest} />
  );
}
