package workflow

// rateClaim is the claim of an application to its planned rate while not all requests can be admitted. As in fair
// queueing, each application has a virtual time, which advances by the gap of the planned rate with each admitted
// request. While an application is short of a resource, applications that are ahead of it in virtual time get none of
// that resource. So applications with short paths or long deadlines do not keep out the others.
type rateClaim struct {
	requestGap     int64 // ns between two requests at the planned rate
	virtualTime    int64 // ns that the requests admitted so far last at the planned rate
	scarceResource int32 // resource that had no time for its latest request; noResource if that was admitted
	scarceUntil    int64 // deadline of that request; the shortage counts up to then
}

// noResource stands for no resource.
const noResource = int32(-1)

// recordRefusal notes that a resource had no time for a request of the application. Until the deadline of that request the application is
// short of the resource, so that others do not get ahead of it there.
func (c *rateClaim) recordRefusal(resourceIndex int32, deadline int64) {
	c.scarceResource, c.scarceUntil = resourceIndex, deadline
}

// recordAdmission notes that a request of the application was admitted: it has used one gap of its planned rate, and is short of nothing.
func (c *rateClaim) recordAdmission() {
	c.virtualTime, c.scarceResource = c.virtualTime+c.requestGap, noResource
}

// newRateClaim returns an application's claim to its planned rate, in requests per second: each admitted request moves its virtual time on
// by the gap between two requests. A rate of 0 counts as 1. It is called for each application when the policy is made.
func newRateClaim(rps float64) rateClaim {
	claim := rateClaim{requestGap: 1e9, scarceResource: noResource}
	if rps > 0 {
		claim.requestGap = int64(1e9 / rps)
	}
	return claim
}

// leadOverShortApps returns by how many ns the application of a request is ahead in virtual time of the application furthest behind that is
// short of a resource (a set of devices) which the request needs. If there is none, it returns 0.
// Each admitted request moves the virtual time of its application on by the gap of the planned rate.
//
// An application that asked for less than its rate lies behind in virtual time. Before the comparison, this application's
// virtual time is raised so that it lies behind the furthest one by no more than the time that the request has from its
// arrival to its deadline. So no application saves up a larger claim than that.
func (a *admission) leadOverShortApps(now int64, request *request) (maxLead int64) {
	// Limit what the application has saved up by asking for less than its planned rate.
	app, maxVirtualTime := &a.apps[request.app], int64(0)
	for i := range a.apps {
		maxVirtualTime = max(maxVirtualTime, a.apps[i].claim.virtualTime)
	}
	app.claim.virtualTime = max(app.claim.virtualTime, maxVirtualTime-(request.deadline-request.arrivedAt))

	// Find the largest lead over an application that is short of a resource which the request needs.
	for i := range a.apps {
		if other := &a.apps[i]; other.claim.scarceResource != noResource && other.claim.scarceUntil > now && request.neededTime[other.claim.scarceResource] > 0 {
			maxLead = max(maxLead, app.claim.virtualTime-other.claim.virtualTime)
		}
	}
	return maxLead
}
