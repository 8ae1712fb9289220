-- Departure delays at New York's airports by carrier and hour: the windows of `make demo`, the worst ten.
-- Run it with: penstock sql -f examples/flight_delays.sql

CREATE TABLE departures (
  carrier   STRING,
  scheduled TIMESTAMP(3),
  delay     BIGINT,
  -- A departure comes out of order by at most its own delay (up to 21 h 41 min in 2013), and 43 min of lead.
  WATERMARK FOR scheduled AS scheduled - INTERVAL '23' HOUR
) WITH ('connector' = 'sample', 'data' = 'flights');

SELECT window_start, carrier, COUNT(*) AS flights, COUNT(*) FILTER (WHERE delay IS NULL) AS cancelled,
       ROUND(AVG(CAST(delay AS DOUBLE)), 1) AS mean_delay, MAX(delay) AS max_delay
FROM TABLE(TUMBLE(TABLE departures, DESCRIPTOR(scheduled), INTERVAL '1' HOUR))
GROUP BY window_start, window_end, carrier
HAVING COUNT(delay) >= 10
ORDER BY mean_delay DESC, window_start, carrier
LIMIT 10;
