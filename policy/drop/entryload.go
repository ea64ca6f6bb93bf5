package drop

// loadSeconds is the number of seconds over which entryLoad averages.
const loadSeconds = 5

// entryLoad is the load that the arrivals at the entry ask of the modules, whether the requests are dropped or not.
type entryLoad struct {
	workers  *workerFleet
	requests [][loadSeconds]float64 // by application: arrivals in the latest seconds, a ring
	seconds  int                    // complete seconds so far
}

// countArrival counts a request of an application that arrives.
func (l *entryLoad) countArrival(app int32) { l.requests[app][l.seconds%loadSeconds]++ }

// addSecond ends a second: the arrivals of the next one take the place of the oldest.
func (l *entryLoad) addSecond() {
	l.seconds++
	for app := range l.requests {
		l.requests[app][l.seconds%loadSeconds] = 0
	}
}

// largest returns the largest load of a module over the latest complete seconds: the tasks that the arrivals would bring,
// if none was dropped, over what the module's workers carry. Without a complete second, it returns 0.
func (l *entryLoad) largest() float64 {
	complete := min(l.seconds, loadSeconds-1) // the ring also has the second that runs
	if complete == 0 {
		return 0
	}
	largest := 0.0
	for module := range l.workers.modules {
		if capacity := l.workers.modules[module].capacity; capacity > 0 {
			largest = max(largest, l.tasks(int32(module), complete)/float64(complete)/capacity)
		}
	}
	return largest
}

// tasks returns how many tasks of a module the requests of so many latest complete seconds would bring.
func (l *entryLoad) tasks(module int32, complete int) (tasks float64) {
	for app := range l.requests {
		arrivals := 0.0
		for age := range complete {
			arrivals += l.requests[app][(l.seconds-1-age)%loadSeconds]
		}
		nodes := l.workers.graphTables.Apps[app].Nodes
		for i := range nodes {
			if nodes[i].Service == module {
				tasks += arrivals * nodes[i].ReachChance
			}
		}
	}
	return tasks
}
