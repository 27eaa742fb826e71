import { Component, type ReactNode } from "react";
import { Empty } from "./empty.tsx";
import { visible } from "./text.ts";

interface BrokenProps {
  readonly children: ReactNode;
  /** What a reader can do then. */
  readonly action: ReactNode;
  readonly onError?: (error: Error) => void;
}

interface BrokenState {
  readonly error: Error | undefined;
}

/** Keeps what is around a view when the view fails. */
export class Broken extends Component<BrokenProps, BrokenState> {
  override state: BrokenState = { error: undefined };

  static getDerivedStateFromError(error: unknown): BrokenState {
    return { error: error instanceof Error ? error : new Error(String(error)) };
  }

  override componentDidCatch(error: Error): void {
    this.props.onError?.(error);
  }

  override render(): ReactNode {
    const { error } = this.state;
    if (error === undefined) return this.props.children;
    return (
      <Empty title="This view failed.">
        <p role="alert">{visible(error.message)}</p>
        {this.props.action}
      </Empty>
    );
  }
}
