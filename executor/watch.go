package executor

import (
	"time"

	"inferplan/executor/loop"
)

// watchTag is the tag of the core's own wake-up, which no policy uses.
const watchTag = loop.HostTag

const watchEvery = time.Second

// watch kills workers that hang. Time in which no round ran either, as
// on a machine that was paused, says nothing of workers.
func (c *core) watch() {
	now := c.now()
	paused := max(0, now-c.watched-2*watchEvery)
	c.watched = now
	for _, d := range c.devices {
		if d.proc == nil || len(d.flight) == 0 {
			continue
		}
		r := d.flight[0]
		r.started += paused
		planned := time.Duration(0)
		if infer := c.tables.Stages[r.stage].Infer; r.size <= len(infer) {
			planned = infer[r.size-1]
		}
		if now-r.started > c.opt.HangTimeout+10*planned {
			c.opt.Log.Error("worker hangs and is killed", "device", d.index, "kind", d.kind, "stage", r.stage, "for", now-r.started)
			d.proc.Kill()
		}
	}
	if c.mix != nil {
		for i, m := range c.models {
			m.stats.mu.Lock()
			c.arrived[i] = m.stats.requests
			m.stats.mu.Unlock()
		}
		c.mix.window(now, c.arrived, c.opt.Log)
	}
	c.answers.tick(now)
	c.loop.SetWake(watchTag, now+watchEvery)
}
