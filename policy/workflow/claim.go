package workflow

// claim is an application's part of the resources where not all can be admitted. As in fair queueing
// each has a virtual time: that in which what was admitted of it comes at its planned rate.
// While an application is short of a resource, those that are ahead of it get none of it. So
// those with short ways or much room before their deadlines do not keep out the others.
type claim struct {
	gap      int64 // between two requests at the planned rate
	virtual  int64
	shortage int32 // resource that had no room for its latest request; -1: none
	until    int64 // deadline of that request
}

// newClaim makes the claim of a planned rate; if none is planned, it counts as 1 per second.
func newClaim(rps float64) claim {
	c := claim{gap: 1e9, shortage: -1}
	if rps > 0 {
		c.gap = int64(1e9 / rps)
	}
	return c
}

// lead returns the time by which the application of a request is ahead of one that is short of a
// resource which the request needs; if there is none, it returns 0. An application that asked for
// less than its rate lags by the time of one request at most.
func (g *door) lead(now int64, q *request) (by int64) {
	app, last := &g.apps[q.model], int64(0)
	for i := range g.apps {
		last = max(last, g.apps[i].virtual)
	}
	app.virtual = max(app.virtual, last-(q.deadline-q.arrived))
	for i := range g.apps {
		if o := &g.apps[i]; o.shortage >= 0 && o.until > now && q.owes[o.shortage] > 0 {
			by = max(by, app.virtual-o.virtual)
		}
	}
	return by
}
