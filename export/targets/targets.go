package targets

import (
	"inferplan/export"
	"inferplan/export/kubernetes"
)

// All returns the targets, in the order of the help. Each call returns new ones, with flags of their own.
func All() []*export.Target {
	return []*export.Target{
		kubernetes.Target(),
	}
}
