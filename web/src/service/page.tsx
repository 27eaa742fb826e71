/** The state of the instance that answers, asked for every two seconds and kept for ten minutes. */
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { API, ApiError, get } from "../api/client.ts";
import {
  type History,
  type Point,
  type Refusal,
  type ServiceFigures,
  withFigures,
} from "../model/service-history.ts";
import { Badge } from "../ui/badge.tsx";
import { Empty } from "../ui/empty.tsx";
import { ErrorBox } from "../ui/error-box.tsx";
import { bytes, count, duration } from "../ui/format.ts";
import { Time, useNow } from "../ui/time.tsx";
import { Chart, type Series } from "./chart.tsx";
import "./service.css";

const POLL_MS = 2_000;
/** Later answers than this say that the page shows the past. */
const LATE_MS = 3 * POLL_MS;

export function ServicePage() {
  const {
    data: history,
    error,
    refetch,
  } = useQuery({
    queryKey: ["service"],
    queryFn: async ({ client, queryKey, signal }): Promise<History> => {
      const latest = await get<ServiceFigures>(`${API}/service`, { signal });
      return withFigures(client.getQueryData<History>(queryKey), latest);
    },
    structuralSharing: false,
    refetchInterval: (query) => (isRefused(query.state.error) ? false : POLL_MS),
    retry: false,
  });
  if (isRefused(error)) {
    return (
      <Empty title="Your token may not see the state of the service.">
        <p>It sums up all projects, so it needs the role admin or service for all of them.</p>
      </Empty>
    );
  }
  return (
    // oxlint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- A keyboard must scroll it.
    <section className="service" aria-label="State of the service" tabIndex={0}>
      {error !== null && <ErrorBox error={error} retry={() => void refetch()} />}
      {history === undefined ? (
        error === null && <p className="service-note">Loading …</p>
      ) : (
        <Shown history={history} />
      )}
    </section>
  );
}

function isRefused(error: unknown): boolean {
  return error instanceof ApiError && error.status === 403;
}

function Shown({ history: { latest, points } }: { readonly history: History }) {
  return (
    <>
      <Facts figures={latest} />
      <section className="service-charts" aria-label="Charts of the last ten minutes">
        <Charts latest={latest} points={points} />
      </section>
      <Refusals refusals={latest.refusals} />
    </>
  );
}

function Facts({ figures }: { readonly figures: ServiceFigures }) {
  const now = useNow();
  const lateMs = now - Date.parse(figures.at);
  const { grpc, http } = figures.connections;
  return (
    <header className="service-head">
      <h1>Service</h1>
      {figures.ready ? <Badge tone="good">ready</Badge> : <Badge tone="bad">not ready</Badge>}
      {lateMs > LATE_MS && <Badge tone="warn">figures of {duration(lateMs)} ago</Badge>}
      <dl className="service-facts">
        <Fact name="Version">{figures.version}</Fact>
        <Fact name="Up for">
          {duration(
            Math.max(0, Math.floor((now - Date.parse(figures.started_at)) / 1_000) * 1_000),
          )}
        </Fact>
        <Fact name="Instance">
          <code title={figures.instance}>{figures.instance.slice(0, 8)}</code>
        </Fact>
        <Fact name="Other instances heard">{count(figures.instances_heard)}</Fact>
        <Fact name="Connections">
          {count(grpc)} gRPC, {count(http)} HTTP
        </Fact>
        <Fact name="Rows stored">
          {count(figures.rows_stored.messages + figures.rows_stored.events)}
        </Fact>
      </dl>
    </header>
  );
}

function Fact({ name, children }: { readonly name: string; readonly children: ReactNode }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

const rate = (value: number): string => (value > 0 && value < 10 ? value.toFixed(1) : count(value));
const ms = (value: number): string => (value === 0 ? "0" : duration(value));

function Charts({
  latest,
  points,
}: {
  readonly latest: ServiceFigures;
  readonly points: readonly Point[];
}) {
  const atMs = points.map((point) => point.atMs);
  const line = (
    name: string,
    color: Series["color"],
    valueOf: (point: Point) => number | undefined,
  ): Series => ({ name, color, values: points.map(valueOf) });
  return (
    <>
      <Chart
        title="Pushed rows a second"
        atMs={atMs}
        format={rate}
        series={[
          line("events", "--accent", (point) => point.eventsPerSecond),
          line("messages", "--kind-step", (point) => point.messagesPerSecond),
        ]}
      />
      <Chart
        title="Time of a commit"
        atMs={atMs}
        format={ms}
        series={[
          line("median", "--accent", (point) => point.commitP50Ms),
          line("99 of 100", "--warn", (point) => point.commitP99Ms),
        ]}
      />
      <Chart
        title="Queue"
        atMs={atMs}
        format={count}
        series={[line("rows", "--accent", (point) => point.queueRows)]}
      >
        <span className="service-note">{bytes(latest.queue.bytes)}</span>
      </Chart>
      <Chart
        title="Watchers and push streams"
        atMs={atMs}
        format={count}
        series={[
          line("watchers", "--accent", (point) => point.watchers),
          line("push streams", "--kind-tool", (point) => point.pushStreams),
        ]}
      />
      <Chart
        title="Calls and requests a second"
        atMs={atMs}
        format={rate}
        series={[line("ended", "--accent", (point) => point.callsPerSecond)]}
      />
      <Chart
        title="Memory"
        atMs={atMs}
        format={bytes}
        isBinary
        series={[line("resident", "--accent", (point) => point.memoryBytes)]}
      />
    </>
  );
}

/** A runner that asked for a turn was later than another one: that is no error. */
const NORMAL = "NOTHING_WAITS";

function Refusals({ refusals: all }: { readonly refusals: readonly Refusal[] }) {
  const refusals = all.filter(({ reason }) => reason !== NORMAL);
  const late = all.find(({ reason }) => reason === NORMAL);
  return (
    <section className="service-refusals" aria-labelledby="service-refusals">
      <h2 id="service-refusals">Last errors</h2>
      {refusals.length === 0 ? (
        <p className="service-note">
          No call or request was refused with an error since the start.
        </p>
      ) : (
        <table>
          <thead>
            <tr>
              <th scope="col">Reason</th>
              <th scope="col">Since the start</th>
              <th scope="col">Last</th>
            </tr>
          </thead>
          <tbody>
            {refusals.map(({ reason, count: times, last_at: lastAt }) => (
              <tr key={reason}>
                <td>
                  <code>{reason}</code>
                </td>
                <td>{count(times)}</td>
                <td>
                  <Time atMs={Date.parse(lastAt)} as="ago" />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {late !== undefined && (
        <p className="service-note">
          No error: <code>{NORMAL}</code> {count(late.count)} {late.count === 1 ? "time" : "times"}.
          A runner asked for a turn, and no message waited.
        </p>
      )}
    </section>
  );
}
