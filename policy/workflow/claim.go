package workflow

// rateClaim is the claim of an application to its planned rate while not all requests can be admitted. As in fair
// queueing, each application has a virtual time, which advances by the gap of the planned rate with each admitted
// request. While an application is short of a resource, applications that are ahead of it in virtual time get none of
// that resource. So applications with short paths or long deadlines do not keep out the others.
type rateClaim struct {
	requestGap     int64 // ns between two requests at the planned rate
	virtualTime    int64 // virtual time in ns
	scarceResource int32 // resource that refused its latest request; -1 if none did
	scarceUntil    int64 // deadline of that request; the shortage counts up to then
}

// newRateClaim returns an application's claim to its planned rate, in requests per second: each admitted request moves its virtual time on
// by the gap between two requests. A rate of 0 counts as 1.
func newRateClaim(rps float64) rateClaim {
	claim := rateClaim{requestGap: 1e9, scarceResource: -1}
	if rps > 0 {
		claim.requestGap = int64(1e9 / rps)
	}
	return claim
}

// leadOverShortApps returns by how many ns the application of a request is ahead in virtual time of the application furthest behind that is
// short of a resource (a set of devices) which the request needs. If there is none, it returns 0.
// Each admitted request moves the virtual time of its application on by the gap of the planned rate.
//
// A virtual time that lies behind is first raised to at most one time budget behind the furthest, so an application that
// asked for less than its rate cannot save up more than that.
func (a *admission) leadOverShortApps(now int64, request *request) (maxLead int64) {
	app, maxVirtualTime := &a.apps[request.app], int64(0)
	for i := range a.apps {
		maxVirtualTime = max(maxVirtualTime, a.apps[i].claim.virtualTime)
	}
	app.claim.virtualTime = max(app.claim.virtualTime, maxVirtualTime-(request.deadline-request.arrivedAt))
	for i := range a.apps {
		if other := &a.apps[i]; other.claim.scarceResource >= 0 && other.claim.scarceUntil > now && request.owedTime[other.claim.scarceResource] > 0 {
			maxLead = max(maxLead, app.claim.virtualTime-other.claim.virtualTime)
		}
	}
	return maxLead
}
