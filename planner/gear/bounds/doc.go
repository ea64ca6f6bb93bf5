// Package bounds has bounds of plans that go beyond those of single ranges (planspace): of plans whose SLO is over all
// requests, also on measured rates, and of plans on other numbers of devices. The vocabulary is that of planner/gear.
//
// Order of reading:
//
//	bound.go      PooledDevices: what no plan exceeds if the SLO is over all requests; the same on measured rates
//	devicecut.go  DeviceCut: what no plan exceeds, by numbers of devices
package bounds
