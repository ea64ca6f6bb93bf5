// Command pods plays what plan export kubernetes writes, without Kubernetes (make bench NAME=pods; root).
//
// Network namespaces are nodes, and a process in each of them is a pod. Everything that a pod is comes from the exported
// files: command, arguments, environment, user, mounts, probes, ports, times to end, names, labels and secrets. This
// program is what Kubernetes is beside them: kubelet (volumes, probes, restarts), the Service (connections go to pods
// that are ready), and names of pods. Their root is a folder of its own that is read-only.
//
// A plan of real models is served in two copies while an open loop of requests runs. A worker's pod is killed, another
// plan is exported and put into the ConfigMap, all servers are replaced one after the other, and a copy is taken away.
//
//	main.go     flags, what happens, the figures
//	cluster.go  manifests, nodes, the Service
//	pod.go      a pod: volumes, processes, probes
package main
