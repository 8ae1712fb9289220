"""The queries of Nexmark that are measured, in Flink's dialect, and DuckDB's where that says it in another way.

Each is what Nexmark's page says of it, over `person`, `auction` and `bid` with `at` as event time; `clocked` has the
bids with the time of the clock, and `side` is a table of files. Windows of the clock that are open where the rows end
give nothing: of q12, what each bidder has in all windows is compared, over bids behind which the job goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Query:
    """A query.

    Args:
        flink: in Flink's dialect.
        duckdb: in DuckDB's; an empty text: the same.
        partitions: columns by which rows are written into folders of files; none: they are forgotten.
        check: what is compared, where the query's rows depend on the clock; an empty text: the query.
        peer: what Flink itself runs; an empty text: the same; None: it cannot.
        events: how many are measured; more where a query is done with few before it is warm.
    """

    flink: str
    duckdb: str = ""
    partitions: tuple[str, ...] = ()
    check: str = ""
    peer: str | None = ""
    events: int = 500_000

    @property
    def compared(self) -> str:
        """The query whose rows are compared."""
        return self.check or self.flink

    @property
    def peer_text(self) -> str:
        """The query as Flink runs it."""
        return self.peer or self.flink

    @property
    def peer_check(self) -> str:
        """The query whose rows are compared, as Flink runs it."""
        return self.check or self.peer_text


_MANY: Final = 4_000_000
_WON: Final = "a.id = b.auction AND b.`at` BETWEEN a.`at` AND a.expires"
_BID_WINDOWS: Final = "TABLE(TUMBLE(TABLE bid, DESCRIPTOR(`at`), INTERVAL '2' SECOND))"
_HOPS: Final = "TABLE(HOP(TABLE bid, DESCRIPTOR(`at`), INTERVAL '1' SECOND, INTERVAL '2' SECOND))"
_SLIDES: Final = """(SELECT b.*, time_bucket(INTERVAL 1 SECOND, b."at") - s AS w
  FROM bid b, (VALUES (INTERVAL 0 SECOND), (INTERVAL 1 SECOND)) AS v (s))"""
_BY_THE_CLOCK: Final = """SELECT bidder, COUNT(*) AS n
  FROM TABLE(TUMBLE(TABLE {}, DESCRIPTOR(p_time), INTERVAL '2' SECOND))
  GROUP BY bidder, window_start, window_end"""
_PRICES: Final = """COUNT(*) AS total_bids, COUNT(*) FILTER (WHERE price < 10000) AS low,
  COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS middle,
  COUNT(*) FILTER (WHERE price >= 1000000) AS high"""
_DISTINCT: Final = """COUNT(DISTINCT bidder) AS bidders,
  COUNT(DISTINCT bidder) FILTER (WHERE price < 10000) AS low_bidders,
  COUNT(DISTINCT auction) AS auctions"""

_BEST: Final = f"""(SELECT id, seller, price, `at` FROM (
    SELECT a.id, a.seller, b.price, b.`at`,
      ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.`at`, b.bidder) AS r
    FROM auction a JOIN bid b ON {_WON}
  ) WHERE r <= 1) AS q"""

QUERIES: Final[dict[str, Query]] = {
    "q0": Query("SELECT auction, bidder, price, `at`, extra FROM bid", events=_MANY),
    "q1": Query("SELECT auction, bidder, price * 9 AS price, `at`, extra FROM bid", events=_MANY),
    "q2": Query("SELECT auction, price FROM bid WHERE MOD(auction, 12) = 0", events=_MANY),
    "q3": Query(
        """SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
        events=_MANY,
    ),
    "q4": Query(
        f"""SELECT q.category, SUM(q.final) AS total, COUNT(*) AS n FROM (
          SELECT MAX(b.price) AS final, a.category FROM auction a JOIN bid b ON {_WON} GROUP BY a.id, a.category
        ) AS q GROUP BY q.category"""
    ),
    "q5": Query(
        f"""SELECT c.auction, c.num FROM (
          SELECT auction, COUNT(*) AS num, window_start AS ws FROM {_HOPS} GROUP BY auction, window_start, window_end
        ) AS c JOIN (
          SELECT MAX(num) AS most, ws FROM (
            SELECT COUNT(*) AS num, window_start AS ws FROM {_HOPS} GROUP BY auction, window_start, window_end
          ) AS n GROUP BY ws
        ) AS m ON c.ws = m.ws AND c.num >= m.most""",
        f"""SELECT c.auction, c.num FROM (SELECT auction, COUNT(*) AS num, w FROM {_SLIDES}
          GROUP BY auction, w) AS c JOIN (
          SELECT MAX(num) AS most, w FROM (SELECT COUNT(*) AS num, w FROM {_SLIDES} GROUP BY auction, w) AS n GROUP BY w
        ) AS m ON c.w = m.w AND c.num >= m.most""",
    ),
    "q6": Query(
        f"""SELECT seller, SUM(price) OVER w AS total, COUNT(*) OVER w AS n FROM {_BEST}
        WINDOW w AS (PARTITION BY seller ORDER BY `at`, id ROWS BETWEEN 10 PRECEDING AND CURRENT ROW)""",
        peer=None,
    ),
    "q7": Query(
        f"""SELECT b.auction, b.price, b.bidder FROM bid b JOIN (
          SELECT MAX(price) AS most, window_start AS ws, window_end AS we FROM {_BID_WINDOWS}
          GROUP BY window_start, window_end
        ) AS m ON b.price = m.most AND b.`at` >= m.ws AND b.`at` < m.we""",
        """SELECT b.auction, b.price, b.bidder FROM bid b JOIN (
          SELECT MAX(price) AS most, time_bucket(INTERVAL 2 SECOND, "at") AS ws FROM bid GROUP BY ws
        ) AS m ON b.price = m.most AND time_bucket(INTERVAL 2 SECOND, b."at") = m.ws""",
    ),
    "q8": Query(
        """SELECT p.id, p.name FROM (
          SELECT id, name, window_start AS ws FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(`at`), INTERVAL '2' SECOND))
          GROUP BY id, name, window_start, window_end
        ) AS p JOIN (
          SELECT seller, window_start AS ws FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(`at`), INTERVAL '2' SECOND))
          GROUP BY seller, window_start, window_end
        ) AS a ON p.id = a.seller AND p.ws = a.ws""",
        """SELECT DISTINCT p.id, p.name FROM person p JOIN auction a ON p.id = a.seller
        AND time_bucket(INTERVAL 2 SECOND, p."at") = time_bucket(INTERVAL 2 SECOND, a."at")""",
        events=_MANY,
    ),
    "q9": Query(
        f"""SELECT id, auction, bidder, price FROM (
          SELECT a.id, b.auction, b.bidder, b.price,
            ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.`at`, b.bidder) AS r
          FROM auction a JOIN bid b ON {_WON}
        ) WHERE r <= 1"""
    ),
    "q10": Query(
        """SELECT auction, bidder, price, `at`, extra, DATE_FORMAT(`at`, 'yyyy-MM-dd') AS d,
        DATE_FORMAT(`at`, 'HH:mm') AS m FROM bid""",
        """SELECT auction, bidder, price, "at", extra, strftime("at", '%Y-%m-%d') AS d, strftime("at", '%H:%M') AS m
        FROM bid""",
        partitions=("d", "m"),
    ),
    "q11": Query(
        """SELECT bidder, COUNT(*) AS n FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(`at`),
        INTERVAL '1' SECOND)) GROUP BY bidder, window_start, window_end""",
        """SELECT bidder, COUNT(*) AS n FROM (
        SELECT bidder, SUM(new) OVER (PARTITION BY bidder ORDER BY "at", rn) AS s FROM (
          SELECT bidder, "at", rn, CASE WHEN "at" - LAG("at") OVER (PARTITION BY bidder ORDER BY "at", rn)
            < INTERVAL 1 SECOND THEN 0 ELSE 1 END AS new FROM (SELECT *, row_number() OVER () AS rn FROM bid)
        )) GROUP BY bidder, s""",
    ),
    "q12": Query(
        _BY_THE_CLOCK.format("clocked"),
        "SELECT bidder, COUNT(*) AS n FROM bid GROUP BY bidder",
        check=f"SELECT bidder, SUM(n) AS n FROM ({_BY_THE_CLOCK.format('lasting')}) WHERE bidder > 0 GROUP BY bidder",
    ),
    "q13": Query(
        """SELECT b.auction, b.bidder, b.price, b.`at`, s.`value` FROM clocked AS b
        JOIN side FOR SYSTEM_TIME AS OF b.p_time AS s ON MOD(b.auction, 10000) = s.`key`""",
        'SELECT b.auction, b.bidder, b.price, b."at", s.value FROM bid b JOIN side s ON b.auction % 10000 = s.key',
        peer="""SELECT b.auction, b.bidder, b.price, b.`at`, s.`value`
        FROM bid AS b, LATERAL TABLE(side_of(CAST(MOD(b.auction, 10000) AS BIGINT))) AS s""",
        events=_MANY,
    ),
    "q14": Query(
        """SELECT auction, bidder, price,
        CASE WHEN EXTRACT(HOUR FROM `at`) BETWEEN 8 AND 18 THEN 'day' ELSE 'night' END AS t,
        CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', '')) AS c FROM bid WHERE price > 1000000""",
        events=_MANY,
    ),
    "q15": Query(f"SELECT CAST(`at` AS DATE) AS d, {_PRICES}, {_DISTINCT} FROM bid GROUP BY CAST(`at` AS DATE)"),
    "q16": Query(
        f"SELECT channel, CAST(`at` AS DATE) AS d, {_PRICES}, {_DISTINCT} FROM bid GROUP BY channel, CAST(`at` AS DATE)"
    ),
    "q17": Query(
        f"""SELECT auction, CAST(`at` AS DATE) AS d, {_PRICES}, MIN(price) AS least, MAX(price) AS most, SUM(price) AS s
        FROM bid GROUP BY auction, CAST(`at` AS DATE)"""
    ),
    "q18": Query(
        """SELECT auction, bidder, price FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction
        ORDER BY `at` DESC, price DESC) AS r FROM bid) WHERE r <= 1"""
    ),
    "q19": Query(
        """SELECT auction, bidder, price, r FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction
        ORDER BY price DESC, `at`, bidder) AS r FROM bid) WHERE r <= 10"""
    ),
    "q20": Query(
        """SELECT b.auction, b.bidder, b.price, a.itemName, a.seller FROM bid b JOIN auction a ON b.auction = a.id
        WHERE a.category = 10"""
    ),
    "q21": Query(
        """SELECT auction, bidder, CASE WHEN LOWER(channel) = 'apple' THEN '0' WHEN LOWER(channel) = 'google' THEN '1'
        ELSE REGEXP_EXTRACT(url, 'channel_id=([0-9]*)', 1) END AS channel_id FROM bid""",
        events=_MANY,
    ),
    "q22": Query(
        "SELECT auction, SPLIT_INDEX(url, '/', 3) AS dir1, SPLIT_INDEX(url, '/', 4) AS dir2 FROM bid",
        "SELECT auction, split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2 FROM bid",
        events=_MANY,
    ),
    "q23": Query(
        """SELECT b.auction, b.price, p.name, a.category FROM bid b JOIN auction a ON b.auction = a.id
        JOIN person p ON b.bidder = p.id WHERE a.category = 11"""
    ),
}
