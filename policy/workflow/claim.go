package workflow

// rateClaim is the claim of an application to its planned rate while not all requests can be admitted. As in fair
// queueing, each application has a virtual time, which advances by the gap of the planned rate with each admitted
// request. While an application is short of a resource, applications that are ahead of it in virtual time get none of
// that resource. So applications with short paths or long deadlines do not keep out the others.
type claim struct {
	gap      int64 // ns between two requests at the planned rate
	virtual  int64 // virtual time in ns
	shortage int32 // resource that refused its latest request; -1 if none did
	until    int64 // deadline of that request; the shortage counts up to then
}

// newRateClaim returns the claim of a planned rate in requests per second. A rate of 0 counts as 1.
func newClaim(rps float64) claim {
	c := claim{gap: 1e9, shortage: -1}
	if rps > 0 {
		c.gap = int64(1e9 / rps)
	}
	return c
}

// leadOverScarce returns by how many ns the application of a request is ahead, in virtual time, of the application
// furthest behind that is short of a resource which the request needs. If there is none, it returns 0.
//
// A virtual time that lies behind is first raised to at most one time budget behind the furthest, so an application that
// asked for less than its rate cannot save up more than that.
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
