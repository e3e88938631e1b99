export interface Settings {
    /** The storage engine; `inMemory` by default. */
    engine?: string;
    /** Be a set of one member of this name, for transactions and change streams. */
    replicaSet?: string;
    /** Further options of tenond. */
    options?: string[];
}

export interface Server {
    /** What drivers take. */
    readonly uri: string;
    readonly port: number;
    readonly directory: string;
    /** Ends the server and removes its folder. */
    stop(): Promise<void>;
}

/** Starts a server. */
export function server(settings?: Settings): Promise<Server>;
/** The path of the tenond that this package carries; the variable TENOND names another one. */
export function program(): string;
