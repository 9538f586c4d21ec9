-- What is asked of attempts that are over, in an index of its own: a year of them is looked through
-- without their rows. gone_us: created_us and how long the devices were held, whatever the clock on
-- the wall did meanwhile; 0 until they are free.
ALTER TABLE attempts ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
ALTER TABLE attempts ADD COLUMN gone_us INTEGER NOT NULL DEFAULT 0;
UPDATE attempts SET tenant = coalesce((SELECT tenant FROM jobs WHERE jobs.id = attempts.job), '');
UPDATE attempts SET gone_us = created_us + device_us / max(1, num_devices) WHERE condition = 5;
CREATE INDEX attempts_over ON attempts
    (tenant, gone_us, created_us, num_devices, device_us, wait_us, borrowed, evicted, condition)
    WHERE condition = 5;
-- What is now: few rows, found by tenant.
CREATE INDEX attempts_now ON attempts
    (tenant, created_us, num_devices, wait_us, borrowed, evicted, gone_us, device_us,
     condition)
    WHERE condition < 5;
CREATE INDEX jobs_queued ON jobs (tenant, state) WHERE state = 1;
