/** The one way to read rows of a session in the order of their numbers, within bounds of rows and bytes. */
import { type SQL, sql } from "drizzle-orm";

interface PageBounds {
  readonly rowsMax: number;
  readonly bytesMax: number;
  /** Only with `events`. */
  readonly eventsMax?: number;
  readonly descending?: boolean;
}

interface PageParts {
  /** Selects the rows in the range, in any order. */
  readonly rows: SQL;
  /** The rows are read once and copied; else they are read twice, which costs less if all of them match. */
  readonly once?: boolean;
  readonly size: SQL;
  readonly events?: SQL;
  /** The columns of the first row of the answer behind its number. */
  readonly head: SQL;
  readonly columns: SQL;
}

/**
 * The rows of a page behind a first row, which has the number of the first row that the page has no room
 * for, or null. The bounds look at sizes only, so a long value is read after it is known to fit. They are
 * added up once; only where they do not all fit, a sum over each row finds the first that does not. A sum
 * over the rows themselves copies them: 3.0 µs of PostgreSQL a row instead of 2.3, and 4.4 instead of 2.4
 * where the bytes end the page (1,000 and 235 rows of 600 bytes, PostgreSQL 18.4).
 */
export function boundedPage(
  { rowsMax, bytesMax, eventsMax, descending = false }: PageBounds,
  { rows, once = false, size, events, head, columns }: PageParts,
): SQL {
  const order = sql`order by seq ${direction(descending)}`;
  const hasEvents = events !== undefined && eventsMax !== undefined;
  const isOver = (sum: SQL): SQL => (hasEvents ? sql`or ${sum} >= ${eventsMax}` : sql``);
  const sizes = sql`select seq, ${size} as size, ${hasEvents ? events : sql`0`} as events from wanted`;
  // The planner thinks that a LIMIT of unknown size takes a tenth of the rows, and so it would plan a page
  // of a long session each time: 0.3 ms, as long as 200 rows. Few different limits have a plan each.
  const most = sql.raw(String(2 ** Math.ceil(Math.log2(rowsMax + 1))));
  return sql`
    with wanted as ${once ? sql`materialized` : sql`not materialized`} (
      select * from (${rows} ${order} limit ${most}) most ${order} limit ${rowsMax + 1}
    ),
    total as (
      select count(*) as rows, ${sql.raw(descending ? "min" : "max")}(seq) as last, sum(size) as bytes, sum(events) as events
      from (${sizes}) sizes
    ),
    cut as materialized (
      select case
        when bytes > ${bytesMax} ${isOver(sql`events`)} then coalesce((
          select seq from (
            select seq, row_number() over w as place,
              sum(size) over w > ${bytesMax} ${isOver(sql`sum(events) over w - events`)} as is_full
            from (${sizes}) sizes
            window w as (${order} rows unbounded preceding)
          ) sums
          where is_full and place > 1 ${order} limit 1
        ), case when rows > ${rowsMax} then last end)
        when rows > ${rowsMax} then last
      end as seq from total
    )
    (select seq ${head} from cut)
    union all
    (select ${columns} from wanted
      where seq ${sql.raw(descending ? ">" : "<")} coalesce((select seq from cut), ${descending ? "-1" : "9223372036854775807"}::bigint)
      ${order})`;
}

export function direction(descending: boolean): SQL {
  return descending ? sql`desc` : sql`asc`;
}
