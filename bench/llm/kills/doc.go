// Command kills kills what serves language models, at random moments with requests under
// way, and counts what becomes of the requests: each must be answered with the text of an
// undisturbed run, under one id, by which it is found again with the same text.
//
//	main.go     parts, flags, figures
//	rig.go      the processes: plan serve, plan agent, three nodes of NATS, and servers that write made-up answers
//	            (testkit/llm/fake): in this process, or as processes of their own where they are killed or stand still
//	clients.go  clients that insist on their answers, and clients that come again later
package main
