/* A rank of an MPI in the two-hop experiment: COLLECTIVE [BYTES ROUNDS]...; the same loop as in two_hop.rs. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

int main(int count, char **arguments) {
    /* In MPI_Init a rank of Open MPI asks every 100 us whether the others are there; many of them on few processors leave
       those that are on their way no time, and MPI_Init takes minutes. So the kernel may wake it up to 20 ms late until then. */
    prctl(PR_SET_TIMERSLACK, 20000000UL, 0, 0, 0);
    MPI_Init(&count, &arguments);
    prctl(PR_SET_TIMERSLACK, 0UL, 0, 0, 0);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int all = strcmp(arguments[1], "all_reduce") == 0;
    for (int argument = 2; argument + 1 < count; argument += 2) {
        long bytes = atol(arguments[argument]);
        int rounds = atoi(arguments[argument + 1]);
        int length = (int)(bytes / 4);
        float *data = malloc(bytes + 4), *result = malloc(bytes + 4);
        for (int index = 0; index < length; index++) data[index] = (float)((rank + index) % 8);
        /* A size's first round makes connections and touches memory; it is not counted. */
        for (int round = 0; round <= rounds; round++) {
            MPI_Barrier(MPI_COMM_WORLD);
            double begun = MPI_Wtime();
            if (all) MPI_Allreduce(data, result, length, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
            else MPI_Reduce(data, result, length, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
            double took = MPI_Wtime() - begun, longest = 0;
            MPI_Barrier(MPI_COMM_WORLD);
            for (int index = 0; (all || rank == 0) && index < length; index++) {
                float sum = 0;
                for (int other = 0; other < size; other++) sum += (float)((other + index) % 8);
                if (result[index] != sum) {
                    fprintf(stderr, "element %d is %f instead of %f\n", index, result[index], sum);
                    MPI_Abort(MPI_COMM_WORLD, 1);
                }
                if (index == 64) break;
            }
            MPI_Reduce(&took, &longest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
            if (rank == 0 && round > 0) {
                printf("two-hop: %ld %.6f\n", bytes, longest);
                fflush(stdout);
            }
        }
        free(data);
        free(result);
    }
    MPI_Finalize();
    return 0;
}
