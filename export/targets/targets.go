package targets

import (
	"inferplan/export"
	"inferplan/export/gateway"
	"inferplan/export/kubernetes"
	"inferplan/export/llamacpp"
	"inferplan/export/rayserve"
	"inferplan/export/sglang"
	"inferplan/export/triton"
	"inferplan/export/vllm"
)

// All returns the targets, in the order of the help. Each call returns new ones, with flags of their own.
func All() []*export.Target {
	return []*export.Target{
		vllm.Target(),
		sglang.Target(),
		llamacpp.Target(),
		gateway.Target(),
		rayserve.Target(),
		triton.Target(),
		kubernetes.Target(),
	}
}
