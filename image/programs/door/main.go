// The front door of a workshop: attendees open one address, give a name, and are in a place of their own.
//
// A browser is known by a cookie, and each cookie belongs to one place at most: all that the browser asks for
// goes to that place's workspace. Which place is whose is kept in a Secret, so that it outlives this process.
package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// In bytes: a request's head, and the heap, beyond which Go collects all the time.
	largestHead, heap = 32 << 10, 96 << 20
	// So many connections at once: a browser with VS Code holds up to ten.
	mostConnections = 4096
	// At the teacher's port, which strangers reach, too.
	mostTeachers = 1024
	// A head comes within so long; a connection that asks for nothing is kept so long.
	headPatience, idle = 10 * time.Second, 2 * time.Minute
	// A proxy keeps its connections longer, load balancers of clouds for ten minutes: who ends one first would
	// lose the request that is just being sent.
	proxyIdle = 11 * time.Minute
	// The list of places and the claims are read again after so long: a teacher may change both.
	refresh = 3 * time.Second
)

// Accepts so many connections at once; others wait until one of them ends.
type listener struct {
	net.Listener
	slots chan struct{}
}

func (l listener) Accept() (net.Conn, error) {
	l.slots <- struct{}{}
	accepted, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return connection{accepted, sync.OnceFunc(func() { <-l.slots })}, nil
}

type connection struct {
	net.Conn
	leave func()
}

func (c connection) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

// Returns the certificate of a folder that has one, else the one that is kept, made once.
func certificate(ctx context.Context, folder string, kept *store) (tls.Certificate, error) {
	chain, key := filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key")
	if _, err := os.Stat(chain); folder != "" && err == nil {
		return tls.LoadX509KeyPair(chain, key)
	}
	chainPEM, keyPEM, err := kept.certificate(ctx)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(chainPEM, keyPEM)
}

func run() error {
	debug.SetMemoryLimit(heap)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	folder := cmp.Or(os.Getenv("RAYSIDE_ACCOUNT"), account)
	client, err := newClient(folder)
	if err != nil {
		return err
	}
	listed, err := client.secretAt(os.Getenv("RAYSIDE_PLACES"))
	if err != nil {
		return fmt.Errorf("RAYSIDE_PLACES %w", err)
	}
	kept, err := client.secretAt(os.Getenv("RAYSIDE_CLAIMS"))
	if err != nil {
		return fmt.Errorf("RAYSIDE_CLAIMS %w", err)
	}
	shown, err := certificate(ctx, os.Getenv("RAYSIDE_TLS"), kept)
	if err != nil {
		return fmt.Errorf("there is no certificate: %w", err)
	}
	places := &room{listed: listed, kept: kept}
	if err := places.refresh(ctx); err != nil {
		return err
	}
	key, err := kept.cookieKey(ctx)
	if err != nil {
		return fmt.Errorf("there is no key for cookies: %w", err)
	}
	opened, err := net.Listen("tcp", cmp.Or(os.Getenv("RAYSIDE_LISTEN"), ":8443"))
	if err != nil {
		return err
	}
	// A proxy of the cluster ends TLS for this host, and leads here by plain HTTP.
	host := os.Getenv("RAYSIDE_HOST")
	var plain net.Listener
	if host != "" {
		if plain, err = net.Listen("tcp", cmp.Or(os.Getenv("RAYSIDE_PLAIN"), ":8080")); err != nil {
			return err
		}
	}
	// Who takes all connections of the one port has none of the kubelet's.
	health, err := net.Listen("tcp", cmp.Or(os.Getenv("RAYSIDE_HEALTH"), ":8081"))
	if err != nil {
		return err
	}
	taught, err := net.Listen("tcp", cmp.Or(os.Getenv("RAYSIDE_TEACHER"), ":8445"))
	if err != nil {
		return err
	}
	askEvery, err := time.ParseDuration(cmp.Or(os.Getenv("RAYSIDE_ASK_EVERY"), usualAskEvery.String()))
	if err != nil {
		return fmt.Errorf("RAYSIDE_ASK_EVERY: %w", err)
	}
	leads := &ways{}
	// In a workspace its editor tells there how far the attendee is; beside it is what they take home.
	progress := os.Getenv("RAYSIDE_PROGRESS")
	page := newBoard(places, leads, progress, askEvery)
	entrance := &door{room: places, ways: leads, key: key, files: progress + ".tar.gz", paces: map[string]paced{}}
	attendees := serverOf(entrance, shown)
	proxied := serverOf(onlyFor(host, entrance), shown)
	proxied.IdleTimeout = proxyIdle
	teacher := serverOf(page, shown)
	probed := http.Server{Handler: http.HandlerFunc(healthy), ReadTimeout: headPatience, WriteTimeout: headPatience}
	go probed.Serve(health)
	go places.keepFresh(ctx)
	go page.keepFresh(ctx)
	go func() {
		err := teacher.ServeTLS(listener{taught, make(chan struct{}, mostTeachers)}, "", "")
		if !errors.Is(err, http.ErrServerClosed) {
			log.Printf("the teacher's page has ended: %v", err)
			stop()
		}
	}()
	// Both ports together have so many connections: each takes memory.
	slots := make(chan struct{}, mostConnections)
	if plain != nil {
		go func() {
			if err := proxied.Serve(listener{plain, slots}); !errors.Is(err, http.ErrServerClosed) {
				log.Printf("the port of the proxy has ended: %v", err)
				stop()
			}
		}()
	}
	go func() {
		<-ctx.Done()
		// WebSockets last for hours: nobody waits for them.
		attendees.Close()
		proxied.Close()
		teacher.Close()
		probed.Close()
	}()
	log.Printf("%d places at %s", len(places.now().places), opened.Addr())
	err = attendees.ServeTLS(listener{opened, slots}, "", "")
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

func serverOf(handler http.Handler, shown tls.Certificate) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headPatience,
		IdleTimeout:       idle,
		MaxHeaderBytes:    largestHead,
		// Handshakes that fail are anybody's.
		ErrorLog: log.New(&discarded{}, "", 0),
		TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{shown},
			MinVersion:   tls.VersionTLS12,
			// WebSockets need HTTP/1.1.
			NextProtos: []string{"http/1.1"},
		},
	}
}

// Answers for one host alone: the door's forms, and places, trust pages of whatever host they are asked by.
func onlyFor(host string, handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Load balancers ask by the pod's address whether it is there.
		if r.Method == http.MethodGet && r.URL.Path == own+"health" {
			healthy(w, r)
			return
		}
		if !strings.EqualFold(r.Host, host) {
			// Go reads a body before it answers, which comes in time or not at all.
			http.NewResponseController(w).SetReadDeadline(time.Now().Add(formPatience))
			http.Error(w, "This is not the address of the workshop.", http.StatusMisdirectedRequest)
			return
		}
		handler.ServeHTTP(w, r)
	})
}

func healthy(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") }

type discarded struct{}

func (discarded) Write(text []byte) (int, error) { return len(text), nil }

func main() {
	log.SetFlags(log.LUTC | log.Ldate | log.Ltime)
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "door:", err)
		os.Exit(1)
	}
}
