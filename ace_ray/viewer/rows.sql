-- The rows of a run that count: of a row that was tried again the evaluated one, else the last; no repeats.
-- Use: .read rows.sql, then SELECT ... FROM run_rows('FOLDER'). DuckDB 1.2 or later.
CREATE OR REPLACE MACRO run_rows(folder) AS TABLE
SELECT * EXCLUDE (filename, file_row_number)
FROM read_parquet(folder || '/rows/*.parquet', filename = true, file_row_number = true, union_by_name = true)
WHERE repeat = 0
QUALIFY row_number() OVER (
    PARTITION BY row_id
    ORDER BY status <> 'infra_error' DESC, filename DESC, file_row_number DESC
) = 1;
