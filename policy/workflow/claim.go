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

// limitSavedClaim raises the virtual time of a request's application, if that asked for so much less than its planned rate that others are far
// ahead: it is then behind the largest virtual time by as much as the request has from its arrival to its deadline. So no application saves
// up a larger claim than that. It is called before leadOverShortApps.
func (a *admission) limitSavedClaim(request *request) {
	app, maxVirtualTime := &a.apps[request.app], int64(0)
	for i := range a.apps {
		maxVirtualTime = max(maxVirtualTime, a.apps[i].claim.virtualTime)
	}
	app.claim.virtualTime = max(app.claim.virtualTime, maxVirtualTime-(request.deadline-request.arrivedAt))
}

// leadOverShortApps returns by how many ns the application of a request is ahead, in virtual time, of the last application that is short of a
// resource (a set of devices) which the request needs. If there is none, it returns 0.
// The virtual time of an application is the time in which its admitted requests come at its planned rate: each moves it on by the time
// between two of them. An application is short of a resource that had no time for its latest request, until the deadline of that
// (scarceUntil).
func (a *admission) leadOverShortApps(now int64, request *request) (maxLead int64) {
	app := &a.apps[request.app]
	for i := range a.apps {
		other := &a.apps[i]
		isShort := other.claim.scarceResource != noResource && other.claim.scarceUntil > now
		if isShort && request.neededTime[other.claim.scarceResource] > 0 {
			maxLead = max(maxLead, app.claim.virtualTime-other.claim.virtualTime)
		}
	}
	return maxLead
}
